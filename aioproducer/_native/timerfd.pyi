"""Timers of the Linux kernel, which are as fine as its clock; those of event loops have a grain of a millisecond."""

def open_timer() -> int:
    """Return the descriptor of a new timer, which is to be closed by `os.close`.

    Raises:
        OSError: this system has none, or no descriptor is left.
    """

def set_timer(descriptor: int, seconds: float, /) -> None:
    """Have a timer's descriptor become readable once after so many seconds, instead of what was set before.

    Args:
        descriptor: of the timer.
        seconds: 0 to 1e9; 0: never.

    Raises:
        OSError: it is no timer, or the time is out of range.
    """
