"""The program of a worker process: `python -m tests.benchmarks.worker JOB`, with the job as JSON.

It imports the client that the job names, does the work and prints the outcome as its last line. Work that needs the
broker stopped on the way prints `READY` and waits for a line on standard input.
"""

import importlib
import sys
from collections.abc import Callable

from tests.benchmarks.job import Job, Outcome

READY = "ready"


def main() -> None:
    """Do the job in the command line."""
    job = Job.from_json(sys.argv[1])
    outcome = _work_of(job)(job)
    print(outcome.to_json(), flush=True)


def wait_for_go() -> None:
    """Tell the main process that this worker is ready, and block until it answers."""
    print(READY, flush=True)
    sys.stdin.readline()


def _work_of(job: Job) -> Callable[[Job], Outcome]:
    """Return the function that a job names."""
    module, _, function = job.work.partition(".")
    work: Callable[[Job], Outcome] = getattr(importlib.import_module(f"{__package__}.clients.{module}"), function)
    return work


if __name__ == "__main__":
    main()
