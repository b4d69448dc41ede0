"""Trust stores and key stores: PEM, PKCS12 and JKS, told apart by their bytes, not by the configured type.

PEM may also be given inline (KIP-651). PKCS12, the stores of Java since 9, of Windows and of OpenSSL, is read by
`cryptography` (extra `keystores`).

JKS, the stores of Java before 9, big-endian: magic FEEDFEED, version, number of entries; each entry a tag, alias and
date, then a certificate (trusted), or a key in Sun's own encryption and its chain; last SHA-1 over password, a fixed
text and all of that. Source: sun.security.provider.JavaKeyStore and KeyProtector of OpenJDK.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from aioproducer.errors import ConfigurationError
from aioproducer.security._secret import NOT_UNICODE, is_passing, is_unicode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, PKCS12KeyAndCertificates


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyEntry:
    """A private key with its certificates; no repr shows it."""

    key: bytes  # PEM, possibly encrypted
    password: str | None  # of `key`
    chain: tuple[bytes, ...]  # DER, our own certificate first

    def __repr__(self) -> str:
        return f"<KeyEntry of {len(self.chain)} certificates>"


class Origin(NamedTuple):
    """Origin of a store, for texts and the attribute `option` of errors."""

    option: str
    path: str | None = None  # None: the option is the store itself

    def __str__(self) -> str:
        return self.option if self.path is None else f"{self.option}={self.path!r}"


def refuse(origin: Origin, why: str, *, option: str | None = None, retriable: bool = False) -> NoReturn:
    """Raise for a store that cannot be used; `option` is the one to change, if it is not that of the store."""
    # Never with a cause: what libraries say may hold a part of the store.
    raise ConfigurationError(f"{origin}: {why}", option=option or origin.option, retriable=retriable) from None


_LARGEST: Final = 64 * 1024 * 1024
_DER: Final = b"\x30"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrustStore:
    """Store of trusted certificates, as configured, with the password revealed."""

    location: str | None
    certificates: str | None  # PEM text
    password: str | None

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.certificates is not None

    @property
    def origin(self) -> Origin:
        if self.location is None:
            return Origin("ssl_truststore_certificates")
        return Origin("ssl_truststore_location", self.location)

    def read(self) -> tuple[bytes, ...]:
        """Return the trusted certificates as DER, or raise ConfigurationError."""
        origin = self.origin
        if self.location is None:
            return _pem_certificates(self.certificates or "", origin)
        content = _read_file(origin)
        kind, option = _kind_of(content, origin), "ssl_truststore_password"
        if kind == "PEM":
            return _pem_certificates(_text(content), origin)
        if kind == "JKS":
            return _jks_certificates(content, self.password, origin, option=option)
        return _pkcs12_certificates(content, self.password, origin, option=option)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyStore:
    """Our own key and certificate, as configured, with passwords revealed."""

    location: str | None
    key: str | None  # PEM text
    certificate_chain: str | None  # PEM text
    password: str | None
    key_password: str | None
    key_location: str | None = None  # PEM, for certificates in PEM

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.key is not None

    @property
    def origin(self) -> Origin:
        return Origin("ssl_keystore_key") if self.location is None else Origin("ssl_keystore_location", self.location)

    @property
    def key_password_option(self) -> str:
        """Option that gives the password of a key in PEM: without one of its own it is that of the store."""
        return "ssl_key_password" if self.key_password is not None else "ssl_keystore_password"

    def read(self) -> KeyEntry:
        """Return the key and its certificates, or raise ConfigurationError."""
        entry = self._read()
        if not entry.chain:
            refuse(self.origin, "it has a private key and no certificate")
        return entry

    def _read(self) -> KeyEntry:
        origin, key_option, store_option = self.origin, "ssl_key_password", "ssl_keystore_password"
        if self.location is None:
            entry = _pem_key(self.key or "", self.key_password, origin, password_option=key_option)
            chain = _pem_certificates(self.certificate_chain or "", Origin("ssl_keystore_certificate_chain"))
            return KeyEntry(key=entry.key, password=entry.password, chain=chain)
        content = _read_file(origin)
        kind = _kind_of(content, origin)
        if self.key_location is not None:
            return self._with_key_file(content, Origin("ssl_key_location", self.key_location), key_option)
        if kind == "PEM":
            # Java takes no store password for PEM; as the key's it can only be meant well.
            password = self.password if self.key_password is None else self.key_password
            return _pem_key(_text(content), password, origin, password_option=key_option)
        if kind == "JKS":
            options = (store_option, key_option)
            return _jks_key(content, origin, password=self.password, key_password=self.key_password, options=options)
        password = self.key_password if self.password is None else self.password
        return _pkcs12_key(content, password, origin, option=store_option)

    def _with_key_file(self, content: bytes, key_origin: Origin, password_option: str) -> KeyEntry:
        origin = self.origin
        kind = _kind_of(content, origin)
        if kind != "PEM":
            refuse(origin, f"it is {kind}, with a key of its own: leave out ssl_key_location", option=key_origin.option)
        key = _read_file(key_origin)
        if _kind_of(key, key_origin) != "PEM":
            refuse(key_origin, "it is not PEM, as a key in a file of its own must be")
        password = self.password if self.key_password is None else self.key_password
        entry = _pem_key(_text(key), password, key_origin, password_option=password_option)
        return KeyEntry(key=entry.key, password=entry.password, chain=_pem_certificates(_text(content), origin))


_CERTIFICATE: Final = ("a certificate", "openssl x509 -inform DER -in FILE -out FILE.pem")
_KEY: Final = ("a private key", "openssl pkey -inform DER -in FILE -out FILE.pem")
_PKCS7: Final = ("a list of certificates (PKCS7)", "openssl pkcs7 -inform DER -in FILE -print_certs -out FILE.pem")
_OTHER_DER: Final = {
    b"\x30": _CERTIFICATE,
    b"\x02\x01\x00": _KEY,
    b"\x02\x01\x01": _KEY,  # of an elliptic curve
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02": _PKCS7,
}
"""Beginning of the content of the outermost element -> what it is, and what converts it; PKCS12 has version 3."""


def _other_der(content: bytes) -> tuple[str, str] | None:
    size = content[1] if len(content) > 1 else 0
    inner = content[2 + (size & 0x7F if size & 0x80 else 0) :]
    return next((what for beginning, what in _OTHER_DER.items() if inner.startswith(beginning)), None)


def _kind_of(content: bytes, origin: Origin) -> str:
    if not content:
        refuse(origin, "the file is empty")
    kind = "JKS" if content.startswith(_JKS_MAGIC) else "PKCS12" if content.startswith(_DER) else "PEM"
    if kind == "PKCS12" and (what := _other_der(content)):
        refuse(origin, f"it is {what[0]} in DER, and must be PEM or PKCS12: convert it with {what[1]}")
    if kind == "PEM" and b"-----BEGIN " not in content:
        refuse(origin, f"it is neither PEM nor PKCS12 nor JKS: it begins with {content[:4].hex(' ')}")
    return kind


def type_in_file(location: str) -> str | None:
    """Return the kind of the store in a file; None if it cannot be read."""
    try:
        origin = Origin("", location)
        return _kind_of(_read_file(origin), origin)
    except Exception:  # noqa: BLE001  # reading it for real says what is wrong
        return None


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")  # comments between blocks have any encoding


def _read_file(origin: Origin) -> bytes:
    path = origin.path or ""
    try:
        size = os.stat(path).st_size  # noqa: PTH116  # the path may be empty
        if size > _LARGEST:
            refuse(origin, f"it has {size} bytes, too many for a store")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = _REASONS.get(number or 0, f"it cannot be read: {getattr(error, 'strerror', None) or error}")
        refuse(origin, why, retriable=is_passing(error))


_REASONS: Final = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "this process may not read it",
    errno.EPERM: "this process may not read it",
}


_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+?)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_HEADER: Final = re.compile(r"[A-Za-z-]+: ")
"""Of an encrypted key of OpenSSL's own format: `Proc-Type: 4,ENCRYPTED`."""
_CERTIFICATES: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})
_WITH_USES: Final = "TRUSTED CERTIFICATE"
"""Label of OpenSSL's own format, which says behind a certificate for which uses it is trusted, and for which not."""
_PEM_LINE: Final = 64


class _PemBlock(NamedTuple):
    label: str
    body: str

    @property
    def is_certificate(self) -> bool:
        return self.label in _CERTIFICATES

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return self.label.startswith("ENCRYPTED") or "ENCRYPTED" in self.body.partition("\n\n")[0]


def _pem_certificates(text: str, origin: Origin) -> tuple[bytes, ...]:
    blocks = list(_pem_blocks(text))
    _refuse_uses(blocks, origin)
    found = tuple(_der_of_block(block, origin) for block in blocks if block.is_certificate)
    if not found:
        refuse(origin, f"it has no certificate: it holds {_pem_contents(blocks)}")
    return found


def _pem_key(text: str, password: str | None, origin: Origin, *, password_option: str) -> KeyEntry:
    blocks = list(_pem_blocks(text))
    _refuse_uses(blocks, origin)
    keys = [block for block in blocks if block.is_key]
    if not keys:
        hint = "; give the key's file as ssl_key_location" if origin.option == "ssl_keystore_location" else ""
        refuse(origin, f"it has no private key: it holds {_pem_contents(blocks)}{hint}")
    if len(keys) > 1:
        refuse(origin, f"it has {len(keys)} private keys, and must have one")
    key = keys[0]
    if key.is_encrypted and not password:
        refuse(origin, f"the private key is encrypted: give its password as {password_option}", option=password_option)
    chain = tuple(_der_of_block(block, origin) for block in blocks if block.is_certificate)
    return KeyEntry(key=_pem(key), password=password if key.is_encrypted else None, chain=chain)


def _refuse_uses(blocks: list[_PemBlock], origin: Origin) -> None:
    # Without what stands behind it, a certificate that is marked as not to be trusted would be trusted.
    if any(block.label == _WITH_USES for block in blocks):
        refuse(
            origin,
            f"it has a {_WITH_USES}, OpenSSL's format with the uses of a certificate, which is not read here: convert "
            "each that is to be trusted with openssl x509 -in FILE -out FILE.pem",
        )


def pem_of(certificates: tuple[bytes, ...]) -> bytes:
    return b"".join(_pem(_PemBlock("CERTIFICATE", base64.b64encode(der).decode())) for der in certificates)


def _pem_blocks(text: str) -> Iterator[_PemBlock]:
    for found in _PEM_BLOCK.finditer(text):
        yield _PemBlock(found[1], found[2].replace("\r\n", "\n"))


def _pem(block: _PemBlock) -> bytes:
    """Return the block as OpenSSL reads it, also where a property file has joined its lines by blanks."""
    body = block.body.strip()
    if not _PEM_HEADER.match(body):
        joined = "".join(body.split())
        body = "\n".join(joined[start : start + _PEM_LINE] for start in range(0, len(joined), _PEM_LINE))
    return f"-----BEGIN {block.label}-----\n{body}\n-----END {block.label}-----\n".encode()


def _der_of_block(block: _PemBlock, origin: Origin) -> bytes:
    try:
        der = base64.b64decode("".join(block.body.split()), validate=True)
    except (binascii.Error, ValueError):
        der = b""
    if not der.startswith(b"\x30"):
        refuse(origin, "a certificate in it is damaged: it is not base64 of a certificate")
    return der


def _pem_contents(blocks: list[_PemBlock]) -> str:
    if not blocks:
        return "no PEM at all (-----BEGIN ...-----)"
    keys, certificates = sum(block.is_key for block in blocks), sum(block.is_certificate for block in blocks)
    others = sorted({block.label for block in blocks if not block.is_key and not block.is_certificate})
    counted = [f"{keys} private key{'s' * (keys > 1)}"] * bool(keys)
    counted += [f"{certificates} certificate{'s' * (certificates > 1)}"] * bool(certificates)
    return ", ".join([*counted, *others])


_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JKS_VERSIONS: Final = (1, 2)
_JKS_KEY, _JKS_TRUSTED = 1, 2
_DIGEST_BYTES: Final = 20
_LARGEST_JKS: Final = 16 * 1024 * 1024  # no store with keys for one client is larger
_SUN_PROTECTION: Final = bytes.fromhex("06 0a 2b 06 01 04 01 2a 02 11 01 01")  # OID 1.3.6.1.4.1.42.2.17.1.1


@dataclass(slots=True)
class _JksEntries:
    """Entries of a store."""

    keys: list[tuple[bytes, tuple[bytes, ...]]] = field(default_factory=list, repr=False)  # protected key, chain
    trusted: list[bytes] = field(default_factory=list)


class _JksReader:
    """Reads numbers and byte strings from the front; raises `struct.error` where the store ends too early."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._content, self._at)
        self._at += struct.calcsize(kind)
        return int(value)

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._content) - self._at:
            raise struct.error("it ends too early")
        self._at += size
        return self._content[self._at - size : self._at]

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.take(self.number("H"))  # "X.509"
        return self.take(self.number("i"))


def _jks_certificates(content: bytes, password: str | None, origin: Origin, *, option: str) -> tuple[bytes, ...]:
    """Return the trusted certificates as DER; without a password the store is not checked, as in Java."""
    contents = _read_jks(content, password, origin, option=option)
    if not contents.trusted:
        refuse(origin, f"it has no trusted certificate: it holds {_counted(len(contents.keys), 'private key')}")
    return tuple(contents.trusted)


def _jks_key(
    content: bytes, origin: Origin, *, password: str | None, key_password: str | None, options: tuple[str, str]
) -> KeyEntry:
    """Return the private key, decrypted, and its chain; `options` are those of the two passwords."""
    if password is None:
        refuse(origin, f"a JKS key store needs its password: give {options[0]}", option=options[0])
    contents = _read_jks(content, password, origin, option=options[0])
    if len(contents.keys) != 1:
        held = _counted(len(contents.keys), "private key") if contents.keys else "no private key"
        refuse(origin, f"it must have one private key: it has {held}, {_counted(len(contents.trusted), 'certificate')}")
    protected, chain = contents.keys[0]
    der = _unprotect(protected, password if key_password is None else key_password, origin, options=options)
    body = base64.encodebytes(der)
    return KeyEntry(
        key=b"-----BEGIN PRIVATE KEY-----\n%b-----END PRIVATE KEY-----\n" % body, password=None, chain=chain
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _read_jks(content: bytes, password: str | None, origin: Origin, *, option: str) -> _JksEntries:
    if len(content) > _LARGEST_JKS:
        refuse(origin, f"it has {len(content)} bytes, too many for a key store")
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    try:
        contents = _jks_entries(_JksReader(body))
    except (struct.error, ValueError) as error:
        refuse(origin, f"the JKS store is damaged: {error}")
    if password is not None and not hmac.compare_digest(_digest(password, body), digest):
        refuse(origin, f"{option} is wrong, or the JKS store is damaged", option=option)
    return contents


def _digest(password: str, body: bytes) -> bytes:
    salted = _utf_16(password) + b"Mighty Aphrodite" + body
    return hashlib.sha1(salted, usedforsecurity=False).digest()


def _utf_16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _jks_entries(reader: _JksReader) -> _JksEntries:
    reader.take(len(_JKS_MAGIC))
    version = reader.number("i")
    if version not in _JKS_VERSIONS:
        raise ValueError(f"version {version} is not known")
    contents = _JksEntries()
    for _ in range(reader.number("i")):
        tag = reader.number("i")
        reader.take(reader.number("H"))  # alias
        reader.number("q")  # date
        if tag == _JKS_KEY:
            protected = reader.take(reader.number("i"))
            chain = tuple(reader.certificate(version) for _ in range(reader.number("i")))
            contents.keys.append((protected, chain))
        elif tag == _JKS_TRUSTED:
            contents.trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry of type {tag} is not known")
    return contents


def _unprotect(protected: bytes, password: str, origin: Origin, *, options: tuple[str, str]) -> bytes:
    """Decrypt a key: XOR with SHA-1 of the password and what came before, from a salt on; then a digest."""
    start = protected.find(_SUN_PROTECTION)
    sealed = _octet_string(protected, start + len(_SUN_PROTECTION)) if start >= 0 else b""
    if len(sealed) <= 2 * _DIGEST_BYTES:
        refuse(origin, "the private key in the JKS store is damaged, or encrypted in a way that Java's JKS has not")
    salt, cipher, digest = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    word, stream, last = _utf_16(password), bytearray(), salt
    while len(stream) < len(cipher):
        last = hashlib.sha1(word + last, usedforsecurity=False).digest()
        stream += last
    size = len(cipher)
    key = (int.from_bytes(cipher, "big") ^ int.from_bytes(stream[:size], "big")).to_bytes(size, "big")
    if not hmac.compare_digest(hashlib.sha1(word + key, usedforsecurity=False).digest(), digest):
        refuse(
            origin,
            f"the private key has another password than the store: {options[1]} is missing or wrong",
            option=options[1],
        )
    return key


def _octet_string(der: bytes, at: int) -> bytes:
    """Return the OCTET STRING behind an AlgorithmIdentifier, whose parameters may be NULL or left out."""
    if der[at : at + 2] == b"\x05\x00":
        at += 2
    if der[at : at + 1] != b"\x04" or len(der) < at + 2:
        return b""
    size, at = der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(der[at : at + count], "big"), at + count
    return der[at : at + size]


def _pkcs12_certificates(content: bytes, password: str | None, origin: Origin, *, option: str) -> tuple[bytes, ...]:
    """Return all certificates as DER: a store of Java marks the trusted ones, one of OpenSSL does not."""
    entries = _load_pkcs12(content, password, origin, option=option)
    found = tuple(_der_of_entry(each) for each in entries.additional_certs)
    if not found:
        held = "a private key and its certificate only" if entries.key is not None else "nothing"
        refuse(origin, f"it has no trusted certificate: it holds {held}")
    return found


def _pkcs12_key(content: bytes, password: str | None, origin: Origin, *, option: str) -> KeyEntry:
    """Return the private key, decrypted, and its chain; store and key have the same password."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # an extra
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    entries = _load_pkcs12(content, password, origin, option=option)
    if entries.key is None:
        refuse(origin, f"it has no private key: it holds {len(entries.additional_certs)} certificates")
    if entries.cert is None:
        refuse(origin, "it has a private key without its certificate")
    key = entries.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    others = _in_chain_order(_der_of_entry(entries.cert), [_der_of_entry(each) for each in entries.additional_certs])
    return KeyEntry(key=key, password=None, chain=others)


def _in_chain_order(own: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """Return our certificate, then its issuers one after another, as they are sent; others are left out."""
    from cryptography import x509  # noqa: PLC0415  # an extra

    chain, left = [own], {x509.load_der_x509_certificate(each).subject: each for each in others}
    while True:
        issuer = left.pop(x509.load_der_x509_certificate(chain[-1]).issuer, None)
        if issuer is None or issuer in chain:
            return tuple(chain)
        chain.append(issuer)


def _load_pkcs12(content: bytes, password: str | None, origin: Origin, *, option: str) -> PKCS12KeyAndCertificates:
    try:
        pkcs12 = import_module("cryptography.hazmat.primitives.serialization.pkcs12")
    except ImportError:
        refuse(
            origin,
            "a PKCS12 store is read by the package cryptography, which is not installed: "
            "pip install 'aioproducer[keystores]', or give the certificates as PEM",
        )
    if password is not None and not is_unicode(password):
        refuse(origin, f"{option} {NOT_UNICODE}", option=option)
    try:
        loaded: PKCS12KeyAndCertificates = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except Exception as error:  # noqa: BLE001  # ValueError for most damage, others for what it does not support
        if "password" in str(error).lower() or "mac" in str(error).lower():
            missing = "missing" if password is None else "wrong"
            refuse(origin, f"{option} is {missing}, or the PKCS12 store is damaged", option=option)
        refuse(origin, f"the PKCS12 store is damaged, or of a kind that is not supported ({type(error).__name__})")
    return loaded


def _der_of_entry(entry: PKCS12Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415  # an extra

    return bytes(entry.certificate.public_bytes(Encoding.DER))
