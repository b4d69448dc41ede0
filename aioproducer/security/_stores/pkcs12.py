"""PKCS12, the key stores of Java since 9, of Windows and of OpenSSL; read by `cryptography` (extra `keystores`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aioproducer.security._stores.contents import KeyEntry, Origin, refuse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, PKCS12KeyAndCertificates


def read_certificates(content: bytes, password: str | None, origin: Origin, *, option: str) -> tuple[bytes, ...]:
    """Return all certificates as DER: a store of Java marks the trusted ones, one of OpenSSL does not."""
    entries = _load(content, password, origin, option=option)
    found = tuple(_der(each) for each in entries.additional_certs)
    if not found:
        held = "a private key and its certificate only" if entries.key is not None else "nothing"
        refuse(origin, f"it has no trusted certificate: it holds {held}")
    return found


def read_key(content: bytes, password: str | None, origin: Origin, *, option: str) -> KeyEntry:
    """Return the private key, decrypted, and its chain; store and key have the same password."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # an extra
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    entries = _load(content, password, origin, option=option)
    if entries.key is None:
        refuse(origin, f"it has no private key: it holds {len(entries.additional_certs)} certificates")
    if entries.cert is None:
        refuse(origin, "it has a private key without its certificate")
    key = entries.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    others = _in_order(_der(entries.cert), [_der(each) for each in entries.additional_certs])
    return KeyEntry(key=key, password=None, chain=others)


def _in_order(own: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """Return our certificate, then its issuers one after another, as they are sent; others are left out."""
    from cryptography import x509  # noqa: PLC0415  # an extra

    chain, left = [own], {x509.load_der_x509_certificate(each).subject: each for each in others}
    while True:
        issuer = left.pop(x509.load_der_x509_certificate(chain[-1]).issuer, None)
        if issuer is None or issuer in chain:
            return tuple(chain)
        chain.append(issuer)


def _load(content: bytes, password: str | None, origin: Origin, *, option: str) -> PKCS12KeyAndCertificates:
    try:
        pkcs12 = import_module("cryptography.hazmat.primitives.serialization.pkcs12")
    except ImportError:
        refuse(
            origin,
            "a PKCS12 store is read by the package cryptography, which is not installed: "
            "pip install 'aioproducer[keystores]', or give the certificates as PEM",
        )
    try:
        loaded: PKCS12KeyAndCertificates = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except Exception as error:  # noqa: BLE001  # ValueError for most damage, others for what it does not support
        if "password" in str(error).lower() or "mac" in str(error).lower():
            missing = "missing" if password is None else "wrong"
            refuse(origin, f"{option} is {missing}, or the PKCS12 store is damaged", option=option)
        refuse(origin, f"the PKCS12 store is damaged, or of a kind that is not supported ({type(error).__name__})")
    return loaded


def _der(entry: PKCS12Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415  # an extra

    return bytes(entry.certificate.public_bytes(Encoding.DER))
