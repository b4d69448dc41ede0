"""JKS, the key stores of Java before 9.

Layout, big-endian: magic FEEDFEED, version, number of entries; each entry a tag, alias and date, then a certificate
(trusted), or a key in Sun's own encryption and its chain; last SHA-1 over password, a fixed text and all of that.

Source: sun.security.provider.JavaKeyStore and KeyProtector of OpenJDK.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

from aioproducer.security._stores.contents import KeyEntry, Origin, refuse

MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = (1, 2)
_KEY, _TRUSTED = 1, 2
_DIGEST_BYTES: Final = 20
_LARGEST: Final = 16 * 1024 * 1024  # no store with keys for one client is larger
_SUN_PROTECTION: Final = bytes.fromhex("06 0a 2b 06 01 04 01 2a 02 11 01 01")  # OID 1.3.6.1.4.1.42.2.17.1.1


@dataclass(slots=True)
class _Contents:
    """Entries of a store."""

    keys: list[tuple[bytes, tuple[bytes, ...]]] = field(default_factory=list, repr=False)  # protected key, chain
    trusted: list[bytes] = field(default_factory=list)


class _Reader:
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


def read_certificates(content: bytes, password: str | None, origin: Origin, *, option: str) -> tuple[bytes, ...]:
    """Return the trusted certificates as DER; without a password the store is not checked, as in Java."""
    contents = _read(content, password, origin, option=option)
    if not contents.trusted:
        refuse(origin, f"it has no trusted certificate: it holds {_number(len(contents.keys), 'private key')}")
    return tuple(contents.trusted)


def read_key(
    content: bytes, origin: Origin, *, password: str | None, key_password: str | None, options: tuple[str, str]
) -> KeyEntry:
    """Return the private key, decrypted, and its chain.

    Args:
        options: of the two passwords.
    """
    if password is None:
        refuse(origin, f"a JKS key store needs its password: give {options[0]}", option=options[0])
    contents = _read(content, password, origin, option=options[0])
    if len(contents.keys) != 1:
        held = _number(len(contents.keys), "private key") if contents.keys else "no private key"
        refuse(origin, f"it must have one private key: it has {held}, {_number(len(contents.trusted), 'certificate')}")
    protected, chain = contents.keys[0]
    der = _unprotect(protected, password if key_password is None else key_password, origin, options=options)
    body = base64.encodebytes(der)
    return KeyEntry(
        key=b"-----BEGIN PRIVATE KEY-----\n%b-----END PRIVATE KEY-----\n" % body, password=None, chain=chain
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _read(content: bytes, password: str | None, origin: Origin, *, option: str) -> _Contents:
    if len(content) > _LARGEST:
        refuse(origin, f"it has {len(content)} bytes, too many for a key store")
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    try:
        contents = _entries(_Reader(body))
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


def _entries(reader: _Reader) -> _Contents:
    reader.take(len(MAGIC))
    version = reader.number("i")
    if version not in _VERSIONS:
        raise ValueError(f"version {version} is not known")
    contents = _Contents()
    for _ in range(reader.number("i")):
        tag = reader.number("i")
        reader.take(reader.number("H"))  # alias
        reader.number("q")  # date
        if tag == _KEY:
            protected = reader.take(reader.number("i"))
            chain = tuple(reader.certificate(version) for _ in range(reader.number("i")))
            contents.keys.append((protected, chain))
        elif tag == _TRUSTED:
            contents.trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry of type {tag} is not known")
    return contents


def _unprotect(protected: bytes, password: str, origin: Origin, *, options: tuple[str, str]) -> bytes:
    """Decrypt a key: XOR with SHA-1 of the password and what came before, from a salt on; then a digest."""
    start = protected.find(_SUN_PROTECTION)
    sealed = _octets(protected, start + len(_SUN_PROTECTION)) if start >= 0 else b""
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


def _octets(der: bytes, at: int) -> bytes:
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
