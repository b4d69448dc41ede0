"""Resident memory of this process: now, and the peak since a moment of one's choice.

Linux tells both in /proc; elsewhere the peak is that of the whole life of the process, which is never less.
"""

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""What proc(5) wants written to `clear_refs` to begin the peak anew."""


def reset_peak() -> None:
    """Begin the peak anew, where the system can."""
    if _CLEAR_REFS.exists():
        _CLEAR_REFS.write_text(_RESET_PEAK, "ascii")


def resident_bytes() -> int:
    """Resident memory now; the peak where the system does not tell."""
    return _from_status("VmRSS") or peak_resident_bytes()


def peak_resident_bytes() -> int:
    """The most resident memory since `reset_peak`, or ever."""
    return _from_status("VmHWM") or _peak_of_life()


def _from_status(name: str) -> int:
    """A line of /proc/self/status, in bytes; 0 where there is none."""
    if not _STATUS.exists():
        return 0
    line = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text("ascii"), re.MULTILINE)
    return int(line[1]) * 1024 if line else 0


def _peak_of_life() -> int:
    """From getrusage: in bytes on macOS, in KiB elsewhere."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
