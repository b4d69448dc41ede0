"""The program of a worker process: `python -m aioproducer.cli.benchmark.worker JOB`, with the job as JSON.

It imports the one client that the job names, does the work and prints the outcome as the last line. Work that needs
something done to the broker half-way says so in a line of its own and waits for a line on standard input.
"""

import importlib
import sys
from collections.abc import Callable

from aioproducer.cli.benchmark.job import Job, Outcome

READY = "ready"
"""The line of a worker that waits to be told to go on."""


def main() -> None:
    """Do the job of the command line."""
    job = Job.from_json(sys.argv[1])
    outcome = _work_of(job)(job)
    print(outcome.to_json(), flush=True)


def wait_for_go() -> None:
    """Tell the ordering process that this worker is ready, and block until it answers."""
    print(READY, flush=True)
    sys.stdin.readline()


def _work_of(job: Job) -> Callable[[Job], Outcome]:
    """The function that a job names."""
    module, _, function = job.work.partition(".")
    work: Callable[[Job], Outcome] = getattr(importlib.import_module(f"{__package__}.clients.{module}"), function)
    return work


if __name__ == "__main__":
    main()
