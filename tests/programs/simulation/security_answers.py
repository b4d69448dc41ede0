"""What a broker of SCRAM says that does not know the password: an answer of the same length with another content."""

from __future__ import annotations

import re
from typing import Final

_NONCE: Final = re.compile(rb"r=[^,]{20,},s=[^,]+,i=\d+")
_SIGNATURE: Final = re.compile(rb"v=[A-Za-z0-9+/]{43,}=*")


def forged(answer: bytes, kind: str) -> bytes:
    """Return the answer with something changed; as it is, if it has nothing of this kind."""
    found = (_SIGNATURE if "signature" in kind else _NONCE).search(answer)
    if found is None:
        return answer
    text = found[0]
    match kind:
        case "signature":
            text = b"v=" + (b"B" if text[2:3] == b"A" else b"A") + text[3:]
        case "no signature":
            text = b"x" + text[1:]
        case "nonce":  # the client's part of it
            text = b"r=" + (b"B" if text[2:3] == b"A" else b"A") + text[3:]
        case "iterations":
            start, _, number = text.rpartition(b"=")
            text = start + b"=" + b"1".zfill(len(number))
    return answer[: found.start()] + text + answer[found.end() :]
