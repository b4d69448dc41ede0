"""Bugs that lose, double and reorder nothing, and only cost time or work: no checker of safety sees them."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


SLOW_BUT_RIGHT = (
    _mutant(
        "few_large_batches_in_the_buffer",
        "in a buffer of a few batches each takes what scraps come back, and requests are many and small",
        "tests/journeys/test_memory_runs_out.py",
        Change("settings.py", "buffer // 4, max(buffer // BATCHES_IN_BUFFER, SMALL_BATCH))", "buffer // 4)"),
    ),
    _mutant(
        "parts_of_refused_travel_alone",
        "what refused records leave of a batch goes one part a round trip",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "sum(part.keeps_sequences for part in parts) - batch.keeps_sequences",
            "len(parts) - batch.is_part",
        ),
        Change("settlement.py", "        if batch.keeps_sequences:\n", "        if batch.is_part:\n"),
    ),
    _mutant(
        "settled_after_each_end",
        "a long queue that reaches its deadline is gone through once for each batch",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "        batch.queue.remove(batch)\n        self._fail(batch, error, now)\n",
            "        batch.queue.remove(batch)\n        self._fail(batch, error, now)\n"
            "        self._settle(batch.queue, now)\n",
        ),
    ),
)
