"""Timers of the kernel, as they are; `_timing/fine_timer.py` makes an alarm of one."""

import math
import os
import select
import sys

import pytest

from aioproducer._native.timerfd import open_timer, set_timer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have none")


def is_readable(descriptor: int, within_s: float) -> bool:
    return bool(select.select([descriptor], [], [], within_s)[0])


def test_timer_is_readable_once_its_time_has_come() -> None:
    timer = open_timer()
    try:
        assert not is_readable(timer, 0)
        set_timer(timer, 1e-6)
        assert is_readable(timer, 60)
        assert int.from_bytes(os.read(timer, 8), sys.byteorder) == 1
        with pytest.raises(BlockingIOError):
            os.read(timer, 8)
        set_timer(timer, 0.01)
        set_timer(timer, 0)
        assert not is_readable(timer, 0.05)
        set_timer(timer, 1e9)
        assert not is_readable(timer, 0)
    finally:
        os.close(timer)


def test_invalid_times_and_descriptors_are_refused() -> None:
    timer = open_timer()
    try:
        for seconds in (-1.5, 1.1e9, math.inf, math.nan):
            with pytest.raises(OSError, match="Invalid argument"):
                set_timer(timer, seconds)
    finally:
        os.close(timer)
    with pytest.raises(OSError, match="Bad file descriptor"):
        set_timer(timer, 1.0)
