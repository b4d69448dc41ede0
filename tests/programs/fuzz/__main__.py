"""Fuzzes the decoders for some minutes: `python -m tests.programs.fuzz --minutes 10`.

With `--engine atheris` libFuzzer chooses what to damage by the lines that it reaches, else chance does. Either way a
failure prints the decoder and the bytes, and the exit code is not 0.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from importlib import import_module
from pathlib import Path

HANGS_AFTER_S = 30
LONGEST_INPUT = 4096
ENGINES = ("chance", "atheris")
INSTRUMENTED = ["aioproducer._protocol", "aioproducer.testing.fake_broker"]


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
    if arguments.engine == "atheris":
        by_atheris(arguments.minutes, arguments.seed)
    else:
        # Imported here, because atheris must know of a module before it is imported for the first time.
        import_module("tests.programs.fuzz.by_chance").run(arguments.minutes, arguments.seed)


def by_atheris(minutes: float, seed: int) -> None:
    """Have libFuzzer keep what reaches a new line; atheris comes with `nox -s fuzz`."""
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        every = list(import_module("tests.programs.fuzz.decoders").decoders().values())
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for number, decoder in enumerate(every):
        (corpus / str(number)).write_bytes(bytes((number,)) + decoder.whole)
        decoder.check(decoder.whole)  # what it imports late is imported now

    def one_input(data: bytes) -> None:
        if len(data) > 1:
            every[data[0] % len(every)].check(data[1:])

    options = [f"-max_total_time={round(60 * minutes)}", f"-seed={seed}", f"-timeout={HANGS_AFTER_S}"]
    options += [f"-max_len={LONGEST_INPUT}", "-rss_limit_mb=2048", f"-artifact_prefix={os.fspath(corpus)}/failed-"]
    atheris.Setup([sys.argv[0], *options, os.fspath(corpus)], one_input)
    atheris.Fuzz()


main()
