"""The private key that signs an assertion: what is wrong with a file that holds none, or another one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import TokenError
from aioproducer.security._secret import Secret, is_passing, revealed_argument

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_DER: Final = b"\x30"
_KINDS: Final = {"RS256": "RSA", "ES256": "EC"}
_CURVE: Final = "secp256r1"


def signing_key(path: Path, password: Secret | None, algorithm: str) -> object:
    """Return the key in a PEM file, for PyJWT.

    Raises:
        TokenError: it cannot be read, or is no key for this algorithm; without the cause, whose frames hold the key.
    """
    try:
        pem = path.read_bytes()
    except OSError as error:
        text = f"the private key {str(path)!r} cannot be read: {error.strerror}"
        raise TokenError(text, retriable=is_passing(error)) from None
    why = _not_pem(pem) or _other_password(pem, password)
    key = None if why else _loaded(pem, password)
    if key is None:
        given = "private_key_password is wrong, or the key" if password is not None else "it"
        why = why or f"{given} is damaged"
    else:
        why = _other_key(key, algorithm)
    if why:
        raise TokenError(f"the private key {str(path)!r} cannot sign with {algorithm}: {why}", retriable=False)
    return key


def _not_pem(content: bytes) -> str:
    blocks = [found.decode() for found in _BLOCK.findall(content)]
    if any(block.endswith("PRIVATE KEY") for block in blocks):
        if "OPENSSH PRIVATE KEY" in blocks:
            return "it has the format of OpenSSH: convert it with ssh-keygen -p -m PKCS8 -f FILE"
        return ""
    if blocks:
        return f"the file holds no private key, only {', '.join(sorted({block.lower() for block in blocks}))}"
    if content.startswith(_DER):
        return "the file is DER, and must be PEM: convert it with openssl pkey -inform DER -in FILE -out FILE.pem"
    return "the file is empty" if not content.strip() else "the file holds no private key in PEM"


def _other_password(pem: bytes, password: Secret | None) -> str:
    is_encrypted = b"BEGIN ENCRYPTED PRIVATE KEY" in pem or b"Proc-Type: 4,ENCRYPTED" in pem
    if is_encrypted and password is None:
        return "it is encrypted: give private_key_password"
    if password is not None and not is_encrypted:
        return "it is not encrypted: leave out private_key_password"
    return ""


def _loaded(pem: bytes, password: Secret | None) -> object | None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415  # comes with PyJWT

    # In a frame that is gone when this module raises for the key.
    text = None if password is None else revealed_argument("private_key_password", password)
    try:
        return load_pem_private_key(pem, None if text is None else text.encode())
    except Exception:  # noqa: BLE001  # ValueError, TypeError, UnsupportedAlgorithm: their texts say little
        return None


def _other_key(key: object, algorithm: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415  # as above
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # noqa: PLC0415  # as above

    is_ec = isinstance(key, EllipticCurvePrivateKey)
    kind = "EC" if is_ec else "RSA" if isinstance(key, RSAPrivateKey) else ""
    if kind == _KINDS[algorithm]:
        if isinstance(key, EllipticCurvePrivateKey) and key.curve.name != _CURVE:
            return f"its curve is {key.curve.name}, and must be P-256 ({_CURVE})"
        return ""
    fitting = next((name for name, of in _KINDS.items() if of == kind), "")
    what = f"an {kind} key: set algorithm={fitting!r}, or give" if fitting else "a key of another kind: give"
    return f"it is {what} an {_KINDS[algorithm]} key"
