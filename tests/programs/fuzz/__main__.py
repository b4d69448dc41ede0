"""Fuzzes the decoders for some minutes: `python -m tests.programs.fuzz --minutes 10`.

With `--engine atheris` libFuzzer chooses what to damage by the lines that it reaches, else chance does. Either way a
failure prints the decoder and the bytes, and the exit code is not 0.
"""

import argparse
import random
import resource
from importlib import import_module

ENGINES = ("chance", "atheris")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--engine", choices=ENGINES, default="chance")
    parser.add_argument("--memory-mb", type=int, default=0, help="most address space; 0 is no limit")
    arguments = parser.parse_args()
    print(f"fuzzing for {arguments.minutes:g} minutes by {arguments.engine}, seed {arguments.seed}", flush=True)
    if arguments.memory_mb:
        limit = arguments.memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # Imported here, because atheris must know of a module before it is imported for the first time.
    import_module(f"tests.programs.fuzz.by_{arguments.engine}").run(arguments.minutes, arguments.seed)


main()
