"""Cost of a decoder: its peak in bytes, and its calls. Neither depends on how busy the machine is."""

import sys
import tracemalloc
from collections.abc import Callable


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = work()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak - before


def calls(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's, that the work made."""
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made
