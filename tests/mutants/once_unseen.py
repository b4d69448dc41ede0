"""Bugs that the simulation did not find when they were first tried; what it looks at since is in its watches."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, families: tuple[str, ...], *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, families=families, changes=changes)


ONCE_UNSEEN = (
    _mutant(
        "native_last_byte_of_headers_lost",
        "C5: the last header of a record is altered",
        ("D1", "D2"),
        Change(
            "_native/append.pyx",
            "        memcpy(at, record.headers, record.headers_size)\n",
            "        memcpy(at, record.headers, record.headers_size - 1)\n        at[record.headers_size - 1] = 0\n",
        ),
    ),
    _mutant(
        "native_headers_not_accounted_for",
        "C5, CRASH: a record with headers is written behind the end of its memory",
        ("D2", "D1"),
        Change(
            "_native/append.pyx",
            "        record.size = RECORD_OVERHEAD + record.headers_size\n",
            "        record.size = RECORD_OVERHEAD + 1\n",
        ),
    ),
    _mutant(
        "native_key_to_another_partition",
        "C5: a key goes to another partition than that of Kafka's other clients",
        ("D2", "D5"),
        Change(
            "_native/append.pyx",
            "            return slot_at(self._accumulator, topic, <Py_ssize_t>key % count)\n",
            "            return slot_at(self._accumulator, topic, <Py_ssize_t>(key >> 1) % count)\n",
        ),
    ),
    _mutant(
        "native_key_that_waited_to_another_partition",
        "C5: a key whose record waits for memory goes elsewhere than one that need not",
        ("D8", "D2"),
        Change(
            "_native/append.pyx",
            "        return (murmur2(key) & 0x7FFFFFFF) % len(slots.slots)\n",
            "        return (murmur2(key) & 0xFFFFFFFF) % len(slots.slots)\n",
        ),
    ),
    _mutant(
        "native_bulk_offsets_shifted",
        "C6: send_many says that its records end before the last",
        ("D1", "D2"),
        Change(
            "_native/append_many.pyx",
            "        self._indexes.data.as_ints[size] = index\n",
            "        self._indexes.data.as_ints[size] = index - 1 if index else 0\n",
        ),
    ),
    _mutant(
        "callbacks_backwards",
        "I3: callbacks of a batch come in the wrong order",
        ("D1", "D2"),
        Change(
            "completion.py",
            "            for index, timestamp, callback, context in result.take_callbacks():\n",
            "            for index, timestamp, callback, context in reversed(result.take_callbacks()):\n",
        ),
    ),
    _mutant(
        "retry_without_backoff",
        "I22: what was refused is sent again without a pause",
        ("D9", "D1"),
        Change(
            "settlement.py",
            "        pause_s = 0.0 if leader_moved or outcome.is_consequence else backoff.delay_s(failures - 1)\n",
            "        pause_s = 0.0\n",
        ),
    ),
    _mutant(
        "retries_without_end",
        "RETRIES: a batch has more attempts than configured",
        ("D9", "D1"),
        Change(
            "core/produce_outcome.py",
            "    if facts.attempts > policy.retries:\n        return False\n    if row.few",
            "    if row.few",
        ),
        Change(
            "core/produce_outcome.py",
            "    if facts.attempts <= policy.retries and policy.acks != 0:\n",
            "    if policy.acks != 0:\n",
        ),
    ),
    _mutant(
        "flush_keeps_failures_to_itself",
        "I19: records that failed and that nobody looked at are told to nobody",
        ("D9", "D2"),
        Change(
            "core/unseen_failures.py",
            "        return UndeliveredError.of(errors, count=count) if count and errors else None\n",
            "        return None\n",
        ),
    ),
    _mutant(
        "awaited_batch_lingers",
        "I20: who awaits a record waits out its linger",
        ("D1", "D2"),
        Change(
            "core/open_batches.py",
            "        if queue.open_batch is not None and queue.open_batch.result is result:\n"
            "            self._make_ready(queue, queue.open_batch)\n",
            "        return\n",
        ),
    ),
    _mutant(
        "idle_connection_stays",
        "IDLE: a connection that nobody uses is never closed",
        ("D1", "D3"),
        Change(
            "network/connection.py",
            "        elif settings.connections_max_idle_ms >= 0:\n",
            "        elif settings.connections_max_idle_ms > 2**31:\n",
        ),
    ),
    _mutant(
        "loan_is_never_forgotten",
        "I15: the pool keeps every chunk that it ever lent",
        ("D2", "D8"),
        Change(
            "core/buffer_pool.py",
            "        payer = self._lent.pop(chunk)\n",
            "        payer = self._lent[chunk]\n",
        ),
    ),
)
