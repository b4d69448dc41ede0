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
        "idle_below_the_request_timeout_is_not_seen",
        "an idle connection lives on for request_timeout_ms, and a load balancer's limit is passed",
        "tests/network/test_connection_times.py",
        Change(
            "network/connection.py", "max(min(self._request_timeout_s, idle_s), _SH", "max(self._request_timeout_s, _SH"
        ),
    ),
    _mutant(
        "retired_without_answers_stays",
        "a connection to a node that has left stays open where acks=0",
        "tests/network/test_connection_times.py",
        Change("network/outgoing_stream.py", "        else:\n            self._on_all_written()\n", ""),
    ),
    _mutant(
        "shorter_pause_ends_the_longer",
        "KIP-219: a node is sent to before the pause is over that it has asked for",
        "tests/network/test_connection_times.py",
        Change("network/node_link.py", "            if until <= self.throttled_until:\n                return\n", ""),
    ),
    _mutant(
        "hint_ends_the_rebootstrap",
        "KIP-1102: who begins anew asks the old nodes again once a produce names a leader",
        "tests/network/test_rebootstrap.py",
        Change(
            "network/node_links.py",
            "        for node_id, link in list(",
            "        self._asks_known = True\n        for node_id, link in list(",
        ),
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
