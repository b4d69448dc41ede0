"""Runs a program that dies with the process that started it: `python tether.py PARENT_PROCESS_ID PROGRAM ARGUMENTS...`.

A broker must not outlive a test run that was killed. On Linux the kernel is asked to send SIGKILL when the parent
ends; the wish survives `exec`, so the program keeps this process id. Elsewhere the program is just run, and the
parent's own clean-up is all there is. A little program rather than `preexec_fn`, which is not safe with threads.

The kernel watches the *thread* that started us: start brokers from a thread that lives as long as they should.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Number of the prctl(2) option "parent-death signal"."""


def main() -> None:
    """Tie this process to its parent, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked, and the kernel will not tell us again
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 - becoming that program is the purpose


if __name__ == "__main__":
    main()
