"""Host and port as one text."""

import re
from typing import Final

LAST_PORT: Final = 65_535
_PLACE: Final = re.compile(r"(?:\[([^][@/\s]+)]|([^][@/:\s]+)):([0-9]{1,5})")


def parse_place(text: str) -> tuple[str, int] | None:
    """Return host and port of `"host:port"`, the host without brackets; None if it is none."""
    match = _PLACE.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= LAST_PORT:
        return None
    return match[1] or match[2], int(match[3])


def place_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
