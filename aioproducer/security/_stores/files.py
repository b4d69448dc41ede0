"""Reads stores from files and inline texts, by their bytes; the type that is configured does not matter."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioproducer.security._stores import jks, pem
from aioproducer.security._stores.contents import KeyEntry, Origin, refuse

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
        """Return the trusted certificates as DER.

        Raises:
            ConfigurationError: the store cannot be read.
        """
        origin = self.origin
        if self.location is None:
            return pem.read_certificates(self.certificates or "", origin)
        content = _read(origin)
        kind, option = kind_of(content, origin), "ssl_truststore_password"
        if kind == "PEM":
            return pem.read_certificates(_text(content), origin)
        if kind == "JKS":
            return jks.read_certificates(content, self.password, origin, option=option)
        from aioproducer.security._stores import pkcs12  # noqa: PLC0415  # needs an extra

        return pkcs12.read_certificates(content, self.password, origin, option=option)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyStore:
    """Our own key and certificate, as configured, with passwords revealed."""

    location: str | None
    key: str | None  # PEM text
    certificate_chain: str | None  # PEM text
    password: str | None
    key_password: str | None

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.key is not None

    @property
    def origin(self) -> Origin:
        return Origin("ssl_keystore_key") if self.location is None else Origin("ssl_keystore_location", self.location)

    def read(self) -> KeyEntry:
        """Return the key and its certificates.

        Raises:
            ConfigurationError: the store cannot be read.
        """
        entry = self._read()
        if not entry.chain:
            refuse(self.origin, "it has a private key and no certificate")
        return entry

    def _read(self) -> KeyEntry:
        origin, key_option, store_option = self.origin, "ssl_key_password", "ssl_keystore_password"
        if self.location is None:
            entry = pem.read_key(self.key or "", self.key_password, origin, password_option=key_option)
            chain = pem.read_certificates(self.certificate_chain or "", Origin("ssl_keystore_certificate_chain"))
            return KeyEntry(key=entry.key, password=entry.password, chain=chain)
        content = _read(origin)
        kind = kind_of(content, origin)
        if kind == "PEM":
            # Java takes no store password for PEM; as the key's it can only be meant well.
            password = self.password if self.key_password is None else self.key_password
            return pem.read_key(_text(content), password, origin, password_option=key_option)
        if kind == "JKS":
            options = (store_option, key_option)
            return jks.read_key(
                content, origin, password=self.password, key_password=self.key_password, options=options
            )
        from aioproducer.security._stores import pkcs12  # noqa: PLC0415  # needs an extra

        password = self.key_password if self.password is None else self.password
        return pkcs12.read_key(content, password, origin, option=store_option)


def kind_of(content: bytes, origin: Origin) -> str:
    """Return which kind of store the bytes are.

    Raises:
        ConfigurationError: they are none.
    """
    if not content:
        refuse(origin, "the file is empty")
    kind = "JKS" if content.startswith(jks.MAGIC) else "PKCS12" if content.startswith(_DER) else "PEM"
    if kind == "PEM" and b"-----BEGIN " not in content:
        refuse(origin, f"it is neither PEM nor PKCS12 nor JKS: it begins with {content[:4].hex(' ')}")
    return kind


def type_in_file(location: str) -> str | None:
    """Return the kind of the store in a file; None if it cannot be read."""
    try:
        origin = Origin("", location)
        return kind_of(_read(origin), origin)
    except Exception:  # noqa: BLE001  # reading it for real says what is wrong
        return None


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")  # comments between blocks have any encoding


def _read(origin: Origin) -> bytes:
    path = origin.path or ""
    try:
        size = os.stat(path).st_size  # noqa: PTH116  # the path may be empty
        if size > _LARGEST:
            refuse(origin, f"it has {size} bytes, too many for a store")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        refuse(origin, _REASONS.get(number or 0, f"it cannot be read: {getattr(error, 'strerror', None) or error}"))


_REASONS: Final = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "this process may not read it",
    errno.EPERM: "this process may not read it",
}
