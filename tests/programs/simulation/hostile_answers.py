"""What comes from a port on which something else listens, and answers that were changed on their way."""

import struct
from random import Random
from typing import Final

STRANGERS: Final = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x46",
    b"SSH-2.0-OpenSSH_9.2\r\n",
)
"""What a web server, a TLS listener and another server say to a Kafka request."""

_SIZE: Final = struct.Struct(">i")
_HEADER_END: Final = 8
"""Behind the size and the correlation id; in flexible versions tagged fields follow."""

_TAGS: Final = (b"\xff\xff\xff\xff\xff\xff", b"\x01\x05\xff\x7f", b"\x7f\x01\x01")
"""Without end, longer than the answer, and more than there are."""

_WRONG_TAGS: Final = 0.4


def is_whole(frame: bytes) -> bool:
    """Whether the frame is as long as it says."""
    return len(frame) >= _SIZE.size and len(frame) == _SIZE.size + _SIZE.unpack_from(frame)[0]


def changed(frame: bytes, chance: Random) -> bytes:
    """Return it with some of its bytes changed."""
    spoilt = bytearray(frame)
    if chance.random() < _WRONG_TAGS and len(frame) > _HEADER_END:
        tags = chance.choice(_TAGS)
        spoilt[_HEADER_END : _HEADER_END + len(tags)] = tags
        return bytes(spoilt)
    for _ in range(chance.randint(1, 3)):
        spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
    return bytes(spoilt)
