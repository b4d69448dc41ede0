"""Names of cipher suites: Java's (IANA) and OpenSSL's."""

from __future__ import annotations

import re
from typing import Final

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
