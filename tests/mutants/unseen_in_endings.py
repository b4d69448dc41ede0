"""Bugs in how records, calls and transactions end that nothing saw: somebody looked for such, and here they are."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


OF_SETTLING = (
    _mutant(
        "refusal_changes_no_epoch",
        "what refused records leave goes on under sequences with a gap, and fails where no retries are left",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "        batch.queue.identity.begin_change()\n        self._replace(batch, parts)\n",
            "        self._replace(batch, parts)\n",
        ),
    ),
    _mutant(
        "id_that_was_left_ends_the_new_one",
        "each late UNKNOWN_PRODUCER_ID about an old id has another one asked for",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "            self._identity.discard(batch.identity.producer_id)\n        if outcome.changes_epoch:\n",
            "            self._identity.discard(self._identity.producer_id or 0)\n        if outcome.changes_epoch:\n",
        ),
    ),
    _mutant(
        "split_is_counted_that_was_none",
        "batches_split counts a batch that could not be taken apart",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "keeps_sequences=keeps_sequences)\n        if not parts:\n",
            "keeps_sequences=keeps_sequences)\n        self.counts.batches_split += 1\n        if not parts:\n",
        ),
        Change(
            "settlement.py", "        self.counts.batches_split += 1\n        self._replace", "        self._replace"
        ),
    ),
    _mutant(
        "late_acknowledgement_leaves_a_gap",
        "a batch that nobody waited for any more, and was written, costs a transactional producer an epoch",
        "tests/test_settlement.py",
        Change("settlement.py", "self._end(batch, is_acknowledged=isinstance(outcome, Complete))", "self._end(batch)"),
    ),
    _mutant(
        "part_forgets_why",
        "last_broker_error: a part of a batch says nothing of what the whole was refused with",
        "tests/test_settlement.py",
        Change("core/batch_splitter.py", "        part.last_error = batch.last_error\n", ""),
    ),
    _mutant(
        "size_without_compression",
        "MessageTooLargeError.size_bytes is not what the broker's limit is compared with",
        "tests/journeys/test_compression.py",
        Change(
            "settlement.py",
            "error.size_bytes, error.option = batch.wire_size,",
            "error.size_bytes, error.option = batch.uncompressed_wire_size,",
        ),
    ),
    _mutant(
        "hint_of_node_0_is_none",
        "KIP-951: that node 0 leads now is not believed",
        "tests/test_sender_hints.py",
        Change("sender.py", "if answer.leader_id >= 0:", "if answer.leader_id > 0:"),
    ),
    _mutant(
        "compression_that_fails_keeps_its_batch",
        "a batch whose compression failed in a thread is never sent",
        "tests/journeys/test_compression.py",
        Change(
            "sealing.py",
            "            self._note_failure(error)\n        self._finish(",
            "            self._note_failure(error)\n            return\n        self._finish(",
        ),
    ),
    _mutant(
        "pauses_of_the_first_id_go_on",
        "the second producer id is asked for with the long pauses that the first one ended with",
        "tests/test_producer_id_source.py",
        Change(
            "producer_id_source.py",
            "        while True:\n            await self._wanted.wait()\n            attempts = 0\n",
            "        attempts = 0\n        while True:\n            await self._wanted.wait()\n",
        ),
    ),
)

OF_FAILURES = (
    _mutant(
        "elapsed_since_the_last_attempt",
        "elapsed_s of an error does not count from the call",
        "tests/test_completion.py",
        Change(
            "completion.py", "elapsed_s=now - batch.called_at", "elapsed_s=now - (batch.sent_at or batch.called_at)"
        ),
    ),
    _mutant(
        "latency_of_the_last_attempt",
        "statistics: the latency of a record that was sent twice is that of its second attempt",
        "tests/test_completion.py",
        Change(
            "completion.py",
            "self._latency.record(now - batch.called_at,",
            "self._latency.record(now - (batch.sent_at or batch.called_at),",
        ),
    ),
    _mutant(
        "failures_are_trimmed_once",
        "failures nobody looks at are kept without bound, but for the first hundred",
        "tests/test_completion.py",
        Change(
            "completion.py",
            "        self._trims_soon = False\n        self.unseen.trim()\n",
            "        self.unseen.trim()\n",
        ),
    ),
    _mutant(
        "failure_survives_one_cancelled_flush",
        "a failure is raised by no flush once two were cancelled",
        "tests/core/test_unseen_failures.py",
        Change("core/unseen_failures.py", "                batch.holders = 1\n", ""),
    ),
    _mutant(
        "waiting_for_memory_has_no_time",
        "elapsed_s: the error of a record that waited for memory does not say how long",
        "tests/core/test_waiting_lines_bounds.py",
        Change(
            "core/waiting_lines.py",
            "BufferTimeoutError(message, elapsed_s=now - record.called_at)",
            "BufferTimeoutError(message)",
        ),
    ),
    _mutant(
        "waiting_for_a_topic_has_no_time",
        "elapsed_s: the error of a record that waited for its topic does not say how long",
        "tests/core/test_waiting_lines_bounds.py",
        Change(
            "core/waiting_lines.py",
            "self._fail(record, error.with_details(elapsed_s=now - record.called_at))",
            "self._fail(record, error)",
        ),
    ),
    _mutant(
        "cancelled_call_of_a_failed_record_says_accepted",
        "CancelledError says of a record that has failed that it goes on",
        "tests/cancellation/test_behind_the_line.py",
        Change("admission.py", "            elif record.result.error is None:\n", "            else:\n"),
    ),
    _mutant(
        "waits_for_a_bulk_add_up",
        "each wait for a bulk that was given up leaves something on every batch",
        "tests/journeys/test_results_of_many.py",
        Change(
            "bulk_delivery.py",
            "            try:\n"
            "                await all_done.reached  # in any order; a batch may be split meanwhile\n"
            "            finally:\n"
            "                for delivery in pending:\n"
            "                    delivery.remove_done_callback(all_done)\n",
            "            await all_done.reached\n",
        ),
    ),
    _mutant(
        "filtered_at_time_0",
        "the delivery of a record that an interceptor dropped has no timestamp where 0 was given",
        "tests/journeys/test_code_of_the_user.py",
        Change(
            "preparation.py",
            "time_of_record = -1 if timestamp is None else timestamp",
            "time_of_record = timestamp or -1",
        ),
    ),
    _mutant(
        "refused_for_partition_0",
        "an interceptor is told -1 of a record that was refused at its call for partition 0",
        "tests/journeys/test_code_of_the_user.py",
        Change(
            "preparation.py",
            "TopicPartition(topic, -1 if partition is None else partition)",
            "TopicPartition(topic, partition or -1)",
        ),
    ),
    _mutant(
        "dropped_for_partition_0",
        "interceptors before the one that drops a record for partition 0 are told -1",
        "tests/test_interceptors.py",
        Change(
            "interceptors.py",
            "TopicPartition(record.topic, -1 if record.partition is None else record.partition)",
            "TopicPartition(record.topic, record.partition or -1)",
        ),
    ),
)

OF_TRANSACTIONS = (
    _mutant(
        "cancelled_begin_keeps_its_turn",
        "no transaction begins any more after a begin_transaction that was cancelled",
        "tests/journeys/test_transaction_turns.py",
        Change("transactional_verbs.py", "        except BaseException:\n", "        except Exception:\n"),
    ),
    _mutant(
        "failed_commits_are_counted",
        "statistics: transactions_committed counts commits that failed",
        "tests/journeys/test_transaction_failures.py",
        Change(
            "transactions/endings.py",
            "            if manager.error is None:\n                self.counts.note(ending, self._loop.time())\n",
            "            self.counts.note(ending, self._loop.time())\n            if manager.error is None:\n",
        ),
    ),
    _mutant(
        "closing_tells_nobody_who_waits",
        "begin_transaction, while the last one is not over, waits until close has come to its end",
        "tests/journeys/test_transaction_calls_given_up.py",
        Change(
            "transactions/endings.py",
            "        self._turns.end(ProducerClosedError(CLOSING))\n        self._waits.tell()\n",
            "        self._turns.end(ProducerClosedError(CLOSING))\n",
        ),
    ),
    _mutant(
        "aborted_without_a_cause",
        "a record given up with a transaction that failed does not say why that failed",
        "tests/journeys/test_transaction_ends.py",
        Change(
            "transactions/endings.py",
            "        reason = self._manager.error or cause\n        self._manager.abort()\n",
            "        self._manager.abort()\n        reason = self._manager.error or cause\n",
        ),
    ),
    _mutant(
        "unstable_offsets_have_no_reason",
        "TransactionTimeoutError of committed_offsets does not say that a transaction is still open",
        "tests/journeys/test_committed_offsets_in_trouble.py",
        Change(
            "transactions/committed_offsets.py",
            "                    raise\n                attempts.last = error\n",
            "                    raise\n",
        ),
    ),
)

UNSEEN_IN_ENDINGS = (*OF_SETTLING, *OF_FAILURES, *OF_TRANSACTIONS)
