"""Bugs of pace, age and size that the simulation did not find when they were first tried."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, families: tuple[str, ...], *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, families=families, changes=changes)


UNSEEN_IN_PACE = (
    _mutant(
        "linger_ignored",
        "LINGER: every batch goes at once",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "        if self._linger_s <= 0 or self.memory_is_short:\n",
            "        if self._linger_s >= 0 or self.memory_is_short:\n",
        ),
    ),
    _mutant(
        "linger_halved",
        "LINGER: batches go too early",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "min(settings.linger_s, self._closing_age_s)",
            "min(settings.linger_s / 2, self._closing_age_s)",
        ),
    ),
    _mutant(
        "linger_of_one_node_for_all",
        "LINGER: batches for other nodes go too early",
        ("D1", "D2"),
        Change("core/open_batches.py", "self._lingering[queue.leader_id]", "self._lingering[None]"),
    ),
    _mutant(
        "batches_closed_young",
        "LINGER: batches are closed when they have hardly begun",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "settings.delivery_timeout_s / 10\n",
            "settings.delivery_timeout_s / 2000\n",
        ),
    ),
    _mutant(
        "batches_half_full",
        "FULL: batches have half of batch_size",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "RecordBatchBuilder(chunk, result, max(limit - HEADER_SIZE, 0))",
            "RecordBatchBuilder(chunk, result, max(limit // 2 - HEADER_SIZE, size, 0))",
        ),
        Change(
            "core/open_batches.py",
            "batch = self._begin(queue, chunk, limit)",
            "batch = self._begin(queue, chunk, limit, size)",
        ),
        Change(
            "core/open_batches.py",
            "def _begin(self, queue: PartitionQueue, chunk: Chunk, limit: int)",
            "def _begin(self, queue: PartitionQueue, chunk: Chunk, limit: int, size: int)",
        ),
    ),
    _mutant(
        "batches_do_not_grow",
        "FULL: batches have a kilobyte at most",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "        return builder.size + size <= builder.limit <= self._limit_of(queue)\n",
            "        return False\n",
        ),
    ),
    _mutant(
        "reconnect_never_resets",
        "PAUSE: a connection that was fine for hours is made again as if it had never been",
        ("D1", "D6"),
        Change(
            "network/node_link.py",
            "        if connection is not None and connection.answers:\n            self._failures_in_a_row = 0\n",
            "",
        ),
    ),
    _mutant(
        "reconnect_not_exponential",
        "PAUSE: a broker that is down is tried again after the first pause each time",
        ("D9", "D6"),
        Change(
            "network/node_link.py",
            "        delay_s = self._backoff.delay_s(self._failures_in_a_row)\n",
            "        delay_s = self._backoff.delay_s(0)\n",
        ),
    ),
    _mutant(
        "reconnect_without_bound",
        "PAUSE: a broker that was down for long is tried again after hours",
        ("D9", "D6"),
        Change(
            "network/node_link.py",
            "            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, random",
            "            settings.reconnect_backoff_ms, 2**40, random",
        ),
    ),
    Mutant(
        name="few_retries_are_many",
        breaks="RETRIES: bytes that a broker finds corrupt are sent until their deadline; rare in the simulation",
        tests=("tests/core/test_produce_outcome.py",),
        changes=(
            Change(
                "core/produce_outcome.py",
                "        return facts.attempts <= FEW_RETRIES\n",
                "        return True\n",
            ),
        ),
    ),
    _mutant(
        "resent_at_one_pace",
        "I22: a batch is sent again after the first pause each time",
        ("D1", "D9"),
        Change(
            "settlement.py",
            "backoff.delay_s(failures - 1)\n        self._acc",
            "backoff.delay_s(0)\n        self._acc",
        ),
    ),
    _mutant(
        "metadata_max_age_ignored",
        "AGE: metadata is never asked for again while all is well",
        ("D1", "D2"),
        Change(
            "network/metadata_refresher.py",
            "left_s = self._last_full + self._settings.metadata_max_age_ms / 1000 - clock()",
            "left_s = self._last_full + 3600 - clock()",
        ),
    ),
    _mutant(
        "idle_topics_are_never_forgotten",
        "AGE: topics that nobody uses are asked for for ever",
        ("D2", "D1"),
        Change(
            "network/metadata_refresher.py",
            "        for topic in idle:\n"
            "            del self._topics[topic]\n"
            "        self.cluster = self.cluster.without_topics(idle)\n",
            "",
        ),
    ),
    _mutant(
        "free_lists_grow",
        "I15: memory that waits for its next use comes on top of buffer_memory",
        ("D2", "D8"),
        Change(
            "core/buffer_pool.py",
            "        self._shrink_free_lists(self.unallocated_bytes - capacity)\n        return Chunk(capacity)\n",
            "        return Chunk(capacity)\n",
        ),
    ),
    _mutant(
        "replicas_may_take_twice",
        "I17: a broker waits longer for replicas than its client waits for the broker",
        ("D1", "D2"),
        Change(
            "sender.py",
            "request_timeout_ms * 2 // 3\n",
            "request_timeout_ms * 2\n",
        ),
    ),
)
