"""Certificates for tests: an authority that lives in memory, and what it issues, as PEM texts.

`cryptography` does it, as the only package that the extra `testing` needs for this: it also signs tokens and writes
PKCS12, while `trustme`, which stands on it, could do neither.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from aioproducer._shown_values import in_any_state

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509.extensions import ExtensionType

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
DAY = dt.timedelta(days=1)
RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, as PEM texts."""

    chain: str
    """The certificate, then those of the authorities between it and the root."""

    key: str
    """PKCS#8, not encrypted."""

    @property
    def pem(self) -> str:
        """Key and chain in one text, as Kafka wants a keystore of type PEM."""
        return self.key + self.chain

    def __repr__(self) -> str:
        return "<Certificate, its key hidden>"


class CertificateAuthority:
    """A root, or an authority below another one, that issues certificates for servers and clients.

    Needs the package `cryptography` (extra `testing`).

    Args:
        name: the common name of its own certificate.
        issuer: the authority that signed it; a root signs itself.
        rsa: RSA keys of 2,048 bits instead of elliptic curves, which are made much faster.
    """

    def __init__(
        self, name: str = "aioproducer test CA", *, issuer: "CertificateAuthority | None" = None, rsa: bool = False
    ) -> None:
        self.name = name
        self._issuer = issuer
        self._rsa = rsa

    @in_any_state
    def __repr__(self) -> str:
        return f"<CertificateAuthority {self.name!r}>"

    @property
    def certificate(self) -> str:
        """Its own certificate as PEM: what a client of this authority's servers trusts."""
        return _pem(self._own)

    def issue(
        self,
        *names: str,
        common_name: str = "",
        usage: Sequence[str] = ("server", "client"),
        begins: dt.timedelta = -DAY,
        ends: dt.timedelta = 365 * DAY,
    ) -> Certificate:
        """Issue a certificate.

        Args:
            names: the DNS names and IP addresses it is for; this machine's loopback names if none is given.
            common_name: the subject, which Kafka takes as the client's name (`CN=...`).
            usage: "server", "client", both, or nothing at all.
            begins: when it becomes valid, from now.
            ends: when it expires, from now.
        """
        from cryptography import x509  # noqa: PLC0415 - an extra

        key = self._new_key()
        purposes = {
            "server": x509.oid.ExtendedKeyUsageOID.SERVER_AUTH,
            "client": x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH,
        }
        extensions: list[tuple[ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName([_general_name(name) for name in names or LOCAL_NAMES]), False),
            (_key_usage(is_authority=False), True),
        ]
        if usage:
            extensions.append((x509.ExtendedKeyUsage([purposes[purpose] for purpose in usage]), False))
        made = self._signed(common_name or (names or LOCAL_NAMES)[0], key, extensions, (begins, ends))
        return Certificate(_pem(made) + self._chain_below_the_root(), _key_pem(key))

    @cached_property
    def _key(self) -> "EllipticCurvePrivateKey | RSAPrivateKey":
        return self._new_key()

    @cached_property
    def _own(self) -> "x509.Certificate":
        from cryptography import x509  # noqa: PLC0415 - an extra

        extensions: list[tuple[ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_key_usage(is_authority=True), True),
        ]
        signer = self._issuer or self
        return signer._signed(self.name, self._key, extensions, (-DAY, 3650 * DAY))  # noqa: SLF001 - of this class

    def _new_key(self) -> "EllipticCurvePrivateKey | RSAPrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415 - an extra

        if self._rsa:
            return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
        return ec.generate_private_key(ec.SECP256R1())

    def _signed(  # noqa: PLR0917 - as they stand in a certificate
        self,
        common_name: str,
        key: "EllipticCurvePrivateKey | RSAPrivateKey",
        extensions: "Sequence[tuple[ExtensionType, bool]]",
        valid: tuple[dt.timedelta, dt.timedelta],
    ) -> "x509.Certificate":
        from cryptography import x509  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - an extra

        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(common_name))
            .issuer_name(_subject(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
        )
        identifiers: list[tuple[ExtensionType, bool]] = [
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ]
        for extension, is_critical in (*extensions, *identifiers):
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(self._key, hashes.SHA256())

    def _chain_below_the_root(self) -> str:
        return "" if self._issuer is None else self.certificate + self._issuer._chain_below_the_root()  # noqa: SLF001


def _subject(common_name: str) -> "x509.Name":
    from cryptography import x509  # noqa: PLC0415 - an extra

    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509  # noqa: PLC0415 - an extra

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415 - an extra

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - an extra

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: "EllipticCurvePrivateKey | RSAPrivateKey") -> str:
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415 - an extra

    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()).decode()
