"""PEM: certificates and keys as text, in a file or inline (KIP-651)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from aioproducer.security._stores.contents import KeyEntry, Origin, refuse

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+?)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER: Final = re.compile(r"[A-Za-z-]+: ")  # of an encrypted key of OpenSSL's own format: "Proc-Type: 4,ENCRYPTED"
_CERTIFICATES: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})
_LINE: Final = 64


class _Block(NamedTuple):
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


def read_certificates(text: str, origin: Origin) -> tuple[bytes, ...]:
    """Return the certificates as DER.

    Raises:
        ConfigurationError: there is none, or one is damaged.
    """
    blocks = list(_blocks(text))
    found = tuple(_der(block, origin) for block in blocks if block.is_certificate)
    if not found:
        refuse(origin, f"it has no certificate: it holds {_contents(blocks)}")
    return found


def read_key(text: str, password: str | None, origin: Origin, *, password_option: str) -> KeyEntry:
    """Return the private key and its certificates.

    Raises:
        ConfigurationError: key or certificate is missing, or a password is.
    """
    blocks = list(_blocks(text))
    keys = [block for block in blocks if block.is_key]
    if not keys:
        refuse(origin, f"it has no private key: it holds {_contents(blocks)}")
    if len(keys) > 1:
        refuse(origin, f"it has {len(keys)} private keys, and must have one")
    key = keys[0]
    if key.is_encrypted and not password:
        refuse(origin, f"the private key is encrypted: give its password as {password_option}", option=password_option)
    chain = tuple(_der(block, origin) for block in blocks if block.is_certificate)
    return KeyEntry(key=_pem(key), password=password if key.is_encrypted else None, chain=chain)


def pem_of(certificates: tuple[bytes, ...]) -> bytes:
    return b"".join(_pem(_Block("CERTIFICATE", base64.b64encode(der).decode())) for der in certificates)


def _blocks(text: str) -> Iterator[_Block]:
    for found in _BLOCK.finditer(text):
        yield _Block(found[1], found[2].replace("\r\n", "\n"))


def _pem(block: _Block) -> bytes:
    """Return the block as OpenSSL reads it, also where a property file has joined its lines by blanks."""
    body = block.body.strip()
    if not _HEADER.match(body):
        joined = "".join(body.split())
        body = "\n".join(joined[start : start + _LINE] for start in range(0, len(joined), _LINE))
    return f"-----BEGIN {block.label}-----\n{body}\n-----END {block.label}-----\n".encode()


def _der(block: _Block, origin: Origin) -> bytes:
    try:
        der = base64.b64decode("".join(block.body.split()), validate=True)
    except (binascii.Error, ValueError):
        der = b""
    if not der.startswith(b"\x30"):
        refuse(origin, "a certificate in it is damaged: it is not base64 of a certificate")
    return der


def _contents(blocks: list[_Block]) -> str:
    if not blocks:
        return "no PEM at all (-----BEGIN ...-----)"
    keys, certificates = sum(block.is_key for block in blocks), sum(block.is_certificate for block in blocks)
    others = sorted({block.label for block in blocks if not block.is_key and not block.is_certificate})
    counted = [f"{keys} private key{'s' * (keys > 1)}"] * bool(keys)
    counted += [f"{certificates} certificate{'s' * (certificates > 1)}"] * bool(certificates)
    return ", ".join([*counted, *others])
