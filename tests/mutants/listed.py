"""The twenty-one bugs that every producer's tests should find and that need no transaction."""

from tests.mutants.mutant import Change, Mutant

LISTED = (
    Mutant(
        name="new_sequence_on_retry",
        breaks="C4, I8: a batch is resent under another sequence, so brokers write it twice",
        families=("D1", "D2"),
        changes=(
            Change(
                "core/partition_queue.py",
                "        if not batch.is_stamped:\n            batch.identity = self.identity",
                "        if batch.attempts or not batch.is_stamped:\n            batch.identity = self.identity",
            ),
        ),
    ),
    Mutant(
        name="sequence_taken_at_append",
        breaks="I5, I6: a batch that is being filled keeps the sequence of an epoch that was left meanwhile",
        families=("D17", "D9"),
        changes=(
            Change(
                "core/open_batches.py",
                "        batch.generation = self._generations.enter()\n",
                "        batch.generation = self._generations.enter()\n"
                "        if queue.identity.can_stamp:\n"
                "            batch.identity = queue.identity.stamp(0)\n",
            ),
            Change(
                "core/partition_queue.py",
                "        batch.close()\n",
                "        batch.close()\n        if batch.is_stamped:\n            self.identity.stamp(batch.count)\n",
            ),
        ),
    ),
    Mutant(
        name="batch_rebuilt_on_retry",
        breaks="I8, C4: what may be written is sent again in smaller pieces",
        families=("D1", "D2"),
        changes=(
            Change(
                "settlement.py",
                "        self.counts.records_retried += batch.count\n",
                "        self.counts.records_retried += batch.count\n"
                "        if batch.count > 1 and outcome.maybe_written:\n"
                "            self._take_apart(batch, keeps_sequences=True, now=now)\n"
                "            return\n",
            ),
        ),
    ),
    Mutant(
        name="requeue_at_tail",
        breaks="I3, C2: a batch that failed goes behind those that were sent after it",
        families=("D3", "D5"),
        changes=(
            Change(
                "core/partition_queue.py",
                "        if not self.queued or batch.order < self.queued[0].order:\n"
                "            self.queued.appendleft(batch)\n"
                "        else:\n"
                "            insort(self.queued, batch, key=_by_order)\n",
                "        self.queued.append(batch)\n",
            ),
        ),
    ),
    Mutant(
        name="memory_released_at_send",
        breaks="C5, I9, I15: a batch's memory is lent again while the batch may still be sent again",
        families=("D1", "D8"),
        changes=(
            Change(
                "core/record_accumulator.py",
                "            queue.put_on_wire(batch, connection)\n",
                "            queue.put_on_wire(batch, connection)\n"
                "            if batch.attempts == 1:\n"
                "                self._pool.give_back(batch.chunk)\n",
            ),
            Change(
                "completion.py",
                "        self._pool.give_back(batch.chunk)\n",
                "        if not batch.attempts:\n            self._pool.give_back(batch.chunk)\n",
            ),
        ),
    ),
    Mutant(
        name="cancelled_waiter_keeps_bytes",
        breaks="I15: whoever gives up waiting for memory is counted for ever",
        families=("D8",),
        changes=(
            Change(
                "core/waiting_lines.py",
                "        self.records -= 1\n        self.bytes -= record.size\n",
                "        self.records -= 1\n",
            ),
            Change(
                "core/waiting_lines.py",
                "        self._leave(record)\n        self._open_batches.adopt(",
                "        self._leave(record)\n        self.bytes -= record.size\n        self._open_batches.adopt(",
            ),
            Change(
                "core/waiting_lines.py",
                "        self._leave(record)\n        self._on_failed(",
                "        self._leave(record)\n        self.bytes -= record.size\n        self._on_failed(",
            ),
        ),
    ),
    Mutant(
        name="wakeup_lost_when_head_waiter_cancelled",
        breaks="I15: when the first in line gives up, nobody behind it is ever served",
        families=("D8", "D2"),
        changes=(
            Change(
                "core/memory_lines.py",
                "        self._show_front(place, line)\n        return True\n",
                "        if record is not None and record.call_order == call_order:\n"
                "            self._show_front(place, line)\n"
                "        return True\n",
            ),
        ),
    ),
    Mutant(
        name="no_correlation_check",
        breaks="I7: an answer counts for the oldest request whatever request it names",
        families=("D20",),
        changes=(
            Change(
                "protocol/conversation.py",
                "        if correlation_id != expected:\n",
                "        if correlation_id < 0 < expected:\n",
            ),
        ),
    ),
    Mutant(
        name="omitted_partition_is_success",
        breaks="C1: what an answer does not mention counts as written",
        families=("D20",),
        changes=(
            Change(
                "core/produce_outcome.py",
                "    if answer is None or answer.base_offset < NO_OFFSET:\n",
                "    if answer is None:\n        return Complete(NO_OFFSET)\n    if answer.base_offset < NO_OFFSET:\n",
            ),
        ),
    ),
    Mutant(
        name="duplicate_is_failure",
        breaks="I21: a batch of which the broker says that it has it already is reported as failed",
        tests=("tests/core/test_produce_outcome.py",),
        changes=(
            Change(
                "core/produce_outcome.py",
                "        if facts.maybe_written:\n            return Complete(NO_OFFSET, answer",
                "        if facts.maybe_written and answer.base_offset >= 0:\n            return "
                "Complete(NO_OFFSET, answer",
            ),
        ),
    ),
    Mutant(
        name="not_leader_without_refresh",
        breaks="I10: nobody asks who leads a partition now",
        families=("D5", "D6"),
        changes=(
            Change(
                "protocol/error_codes.py",
                'NOT_LEADER_OR_FOLLOWER = 6, "retriable metadata not_written"',
                'NOT_LEADER_OR_FOLLOWER = 6, "retriable not_written"',
            ),
        ),
    ),
    Mutant(
        name="in_flight_expiry_resets_sequence",
        breaks="I5, C1: records get the sequences of a batch that may still arrive, and are taken for copies",
        families=("D9", "D1"),
        changes=(
            Change(
                "settlement.py",
                "            if batch.is_stamped:\n"
                "                batch.queue.identity.abandon(batch)\n"
                "            return\n",
                "            if batch.is_stamped:\n"
                "                batch.queue.identity.next_sequence = batch.identity.base_sequence\n"
                "            return\n",
            ),
        ),
    ),
    Mutant(
        name="bump_with_others_in_flight",
        breaks="I6: a partition takes a new epoch while batches of the old one are unresolved",
        families=("D9", "D7"),
        changes=(
            Change(
                "core/partition_queue.py",
                "        if self.on_wire or any(batch.is_unresolved for batch in self.queued):\n",
                "        if any(batch.is_unresolved for batch in self.queued):\n",
            ),
        ),
    ),
    Mutant(
        name="sequence_overflow",
        breaks="I5, I16: sequences go on behind 2^31 - 1",
        families=("D18",),
        changes=(
            Change(
                "core/record_batch_header.py",
                "    return (sequence + count) % (MAX_SEQUENCE + 1)\n",
                "    return sequence + count\n",
            ),
        ),
    ),
    Mutant(
        name="older_leader_epoch_wins",
        breaks="I24: old news of a leader replaces newer",
        families=("D5", "D14"),
        changes=(
            Change(
                "core/cluster.py",
                "        older = [number for number, (old, new) in pairs if new < old]\n",
                "        older = [number for number, (old, new) in pairs if new < old and new == NO_EPOCH]\n",
            ),
        ),
    ),
    Mutant(
        name="flush_wakes_once",
        breaks="I17, I19: of several who flush, one is told",
        families=("D1", "D2"),
        changes=(
            Change(
                "flush_waiters.py",
                "                finished.set_result(None)\n",
                "                finished.set_result(None)\n                break\n",
            ),
        ),
    ),
    Mutant(
        name="close_leaves_futures",
        breaks="I2: what waits in line when the producer is closed never ends",
        families=("D16",),
        changes=(
            Change(
                "running_producer.py",
                "        self.lines.fail_all(error)\n        self.settlement",
                "        self.settlement",
            ),
        ),
    ),
    Mutant(
        name="cancel_after_append_removes_record",
        breaks="C3, I11: who is cancelled takes records back that were sent, and those of others with it",
        families=("D8", "D1"),
        changes=(
            Change(
                "record_verbs.py",
                "        return await delivery\n",
                "        try:\n"
                "            return await delivery\n"
                "        except BaseException as error:\n"
                "            if self._running is not None and not delivery.done():\n"
                "                self._running.take_back(delivery, error)\n"
                "            raise\n",
            ),
            Change(
                "running_producer.py",
                "    def new_result(self) -> BatchResult:\n",
                "    def take_back(self, delivery, cause) -> None:\n"
                "        from aioproducer.errors import Outcome\n"
                "        queue = self.accumulator.partitions.queue(delivery.home.topic_partition)\n"
                "        for batch in list(queue.queued):\n"
                "            if batch.result is delivery.home:\n"
                "                error = KafkaError(f'withdrawn: {cause!r}', outcome=Outcome.NOT_WRITTEN)\n"
                "                queue.remove(batch)\n"
                "                self.settlement._fail(batch, error, self.loop.time())\n"
                "\n"
                "    def new_result(self) -> BatchResult:\n",
            ),
        ),
    ),
    Mutant(
        name="acks_0_waits",
        breaks="CALM, I2: with acks=0 an answer is awaited that never comes",
        families=("D4",),
        changes=(Change("sender.py", "                expects_response=acks != 0,\n", ""),),
    ),
    Mutant(
        name="throttle_ignored",
        breaks="KIP-219: a broker that asks for a pause gets none",
        families=("D19",),
        changes=(
            Change(
                "network/node_link.py",
                "        return self.connection is not None and not self.is_throttled and self.connection.can_send\n",
                "        return self.connection is not None and self.connection.can_send\n",
            ),
        ),
    ),
    Mutant(
        name="shared_timestamp",
        breaks="C6: all records of a batch are reported with the time of its first",
        families=("D1",),
        changes=(
            Change(
                "_native/append.pyx",
                "        self.write(builder, record)\n        return delivery\n",
                "        self.write(builder, record)\n"
                "        delivery._timestamp = builder.base_timestamp\n"
                "        return delivery\n",
            ),
        ),
    ),
)
