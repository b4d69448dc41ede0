"""Damage by libFuzzer, which keeps what reaches a new line; atheris comes with `nox -s fuzz`."""

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

HANGS_AFTER_S = 30
LONGEST_INPUT = 4096
INSTRUMENTED = ["aioproducer._protocol", "aioproducer.testing.fake_broker"]


def run(minutes: float, seed: int) -> None:
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
