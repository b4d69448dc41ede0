"""Builds OpenSSL's context from the `ssl_*` options; names of cipher suites, and the validity of our certificate.

`_network/tls_reloader.py` calls this again when a file of a store has changed.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from aioproducer.errors import ConfigurationError
from aioproducer.security._secret import NOT_UNICODE, is_unicode
from aioproducer.security._stores import KeyEntry, KeyStore, TrustStore, pem_of, refuse, type_in_file

_LONGEST_PASSWORD: Final = 1024  # bytes: PEM_BUFSIZE of OpenSSL

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsRules:
    """Options of TLS other than stores."""

    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    checks_name: bool = True


class TlsContext(NamedTuple):
    """OpenSSL's context, and what texts say about it."""

    context: ssl.SSLContext
    has_certificate: bool
    has_truststore: bool
    warnings: tuple[tuple[str, str], ...] = ()  # (option, what should be looked at)
    unnamed: Callable[[], ssl.SSLContext] | None = None  # makes a context that checks all but names, without our key


def build_context(rules: TlsRules, trusted: TrustStore, own: KeyStore) -> TlsContext:
    """Return a context with what the stores hold now; reads files, and may take a tenth of a second.

    As `ssl.create_default_context`, but without `VERIFY_X509_STRICT`, which that sets from Python 3.13 on: private CAs
    that Java and librdkafka accept fail under it. A certificate in the trust store need not be a root.

    Raises:
        ConfigurationError: a store, version or cipher suite cannot be used.
    """
    warnings: list[tuple[str, str]] = []
    certificates = trusted.read() if trusted.is_given else None
    try:
        context = _without_key(rules, certificates, warnings)
    except ssl.SSLError as error:
        refuse(trusted.origin, f"a certificate in it is damaged ({error.reason or 'not one of X.509'})")
    if own.is_given:
        _use_key(context, own, warnings)
    if not rules.checks_name:
        text = "the names of brokers are not checked: any certificate of a trusted CA is accepted for any broker"
        warnings.append(("ssl_endpoint_identification_algorithm", text))
    unnamed = partial(_without_key, replace(rules, checks_name=False), certificates, [])
    return TlsContext(context, own.is_given, trusted.is_given, tuple(warnings), unnamed)


def _without_key(
    rules: TlsRules, certificates: tuple[bytes, ...] | None, warnings: list[tuple[str, str]]
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.check_hostname = rules.checks_name
    _set_versions(context, rules)
    _set_ciphers(context, rules.cipher_suites, warnings)
    if certificates is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cadata=b"".join(certificates))
    return context


def types_that_differ(
    trusted: TrustStore, own: KeyStore, *, trusted_type: str | None, own_type: str | None
) -> Iterator[tuple[str, str, str]]:
    """Yield option, type configured and type found of each store whose bytes are of another type."""
    stores = (("ssl_truststore_type", trusted.location, trusted_type), ("ssl_keystore_type", own.location, own_type))
    for option, location, configured in stores:
        found = type_in_file(location) if location is not None and configured is not None else None
        if found is not None and configured is not None and found != configured:
            yield option, configured, found


def _set_versions(context: ssl.SSLContext, rules: TlsRules) -> None:
    enabled = [VERSIONS[name] for name in rules.enabled_protocols]
    highest = VERSIONS.get(rules.protocol, ssl.TLSVersion.TLSv1_3)  # "TLS": the highest
    context.minimum_version = min(enabled)
    context.maximum_version = min(max(enabled), highest)


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...], warnings: list[tuple[str, str]]) -> None:
    if not suites:
        return
    older = [openssl_name(suite) for suite in suites if suite not in TLS_1_3]
    if set(suites) & set(TLS_1_3) != set(TLS_1_3[:3]) and context.maximum_version is ssl.TLSVersion.TLSv1_3:
        text = "Python cannot choose among the suites of TLS 1.3: the broker chooses; this option is for TLS 1.2"
        warnings.append(("ssl_cipher_suites", text))
    if not older:
        if context.maximum_version is ssl.TLSVersion.TLSv1_3:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for suite in older:
        try:
            context.set_ciphers(suite)
        except (ssl.SSLError, ValueError):  # a NUL character, and lone surrogates
            text = f"ssl_cipher_suites: {suite!r} is not a cipher suite that this OpenSSL ({ssl.OPENSSL_VERSION}) knows"
            raise ConfigurationError(text, option="ssl_cipher_suites") from None
    context.set_ciphers(":".join(older))


def _use_key(context: ssl.SSLContext, own: KeyStore, warnings: list[tuple[str, str]]) -> None:
    entry = own.read()
    validity = validity_of(entry.chain[0])
    trouble = validity.trouble(datetime.now(UTC)) if validity is not None else None
    if trouble is not None:
        warnings.append((own.origin.option, f"our certificate will not be accepted: {trouble}"))
    password = entry.password
    if password is not None:
        _check_password(own, password)
    try:
        with _as_file(entry) as path:
            # Always with a function: without one, OpenSSL asks on the terminal.
            context.load_cert_chain(path, password=lambda: password or "")
    except ssl.SSLError as error:
        _refuse_key(own, entry, error)


def _check_password(own: KeyStore, password: str) -> None:
    size = len(password.encode(errors="surrogatepass"))
    if not is_unicode(password):
        why = NOT_UNICODE
    elif size > _LONGEST_PASSWORD:
        why = f"has {size} bytes, and OpenSSL takes at most {_LONGEST_PASSWORD}"
    else:
        return
    option = own.key_password_option
    refuse(own.origin, f"{option} {why}", option=option)


def _refuse_key(own: KeyStore, entry: KeyEntry, error: ssl.SSLError) -> None:
    if error.reason == "KEY_VALUES_MISMATCH":
        refuse(own.origin, "the private key belongs to another certificate than the first one")
    if error.reason in {"EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
        refuse(own.origin, f"OpenSSL does not accept the certificate: {error.reason}")
    if entry.password is not None:
        option = own.key_password_option
        refuse(own.origin, f"{option} is wrong, or the private key is damaged", option=option)
    refuse(own.origin, f"the private key or a certificate is damaged ({error.reason or 'PEM'})")


@contextmanager
def _as_file(entry: KeyEntry) -> Iterator[str]:
    """Yield the name of a file with key and chain: OpenSSL takes only names; it is in memory where that is possible."""
    content = entry.key + pem_of(entry.chain)
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("aioproducer")  # closed in other programs by default
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by this user alone, and deleted at once
        file.write(content)
        file.flush()
        yield file.name


_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80
_YEARS_OF_1900: Final = 50


class Validity(NamedTuple):
    """From when until when a certificate is valid."""

    begins: datetime
    ends: datetime

    def trouble(self, now: datetime) -> str | None:
        """Return what is wrong with the certificate now; None if it is valid."""
        if now < self.begins:
            return f"it is not valid before {self.begins:%Y-%m-%d %H:%M} UTC"
        return f"it has expired at {self.ends:%Y-%m-%d %H:%M} UTC" if now > self.ends else None


def validity_of(certificate: bytes) -> Validity | None:
    """Return the validity of a certificate in DER; None if it cannot be read."""
    try:
        _, whole, _ = _element(certificate, 0)
        _, signed, _ = _element(whole, 0)
        at = 0
        if signed[0] == _VERSION:
            _, _, at = _element(signed, at)
        for _ in range(3):  # serial number, signature algorithm, issuer
            _, _, at = _element(signed, at)
        _, dates, _ = _element(signed, at)
        kind, begins, at = _element(dates, 0)
        other_kind, ends, _ = _element(dates, at)
        return Validity(_time(kind, begins), _time(other_kind, ends))
    except (IndexError, ValueError):
        return None


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    """Return tag and content of the element at a position, and the position behind it."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size & _LONG:
        count = size & ~_LONG
        size, at = int.from_bytes(der[at : at + count], "big"), at + count
    return tag, der[at : at + size], at + size


def _time(kind: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year (RFC 5280)
        digits = f"{19 if int(digits[:2]) >= _YEARS_OF_1900 else 20}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


TLS_1_3: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)

_IANA: Final = re.compile(r"TLS_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)")


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2; a name that is not IANA's stays as it is.

    `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256`.
    """
    found = _IANA.fullmatch(suite)
    if found is None:
        return suite
    exchange = found[1].replace("_", "-")
    cipher = re.sub(r"^(AES|CAMELLIA)_(\d+)", r"\1\2", found[2]).replace("_CBC_", "_").replace("_", "-")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20-POLY1305"
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
