"""Bugs that other producers have had, and that were published."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

PUBLISHED: Final = (
    Mutant(
        "new_sequence_on_retry",
        "a batch is resent under another sequence, so brokers write it twice",
        Change(
            "_accumulator/partition.py",
            "Partition.put_on_wire",
            "batch.identity is NO_IDENTITY",
            "batch.attempts or batch.identity is NO_IDENTITY",
        ),
        families=("D1", "D2"),
    ),
    Mutant(
        "sequence_taken_at_append",
        "a batch that is being filled keeps the sequence of an epoch that was left meanwhile",
        Change(
            "_accumulator/open_batches.py",
            "OpenBatches._begin",
            "batch.generation = self._generations.enter()",
            """
                    batch.generation = self._generations.enter()
                    if partition.identity.can_stamp:
                        batch.identity = partition.identity.stamp(0)
                    """,
        ),
        Change(
            "_accumulator/partition.py",
            "Partition.take_open",
            "batch.move_to(BatchState.QUEUED)",
            """
                    batch.move_to(BatchState.QUEUED)
                    if batch.is_stamped:
                        self.identity.stamp(batch.count)
                    """,
        ),
        families=("D17", "D9"),
    ),
    Mutant(
        "batch_rebuilt_on_retry",
        "what may be written is sent again in smaller pieces",
        Change(
            "_sender/settlement.py",
            "Settlement._retry",
            "self.counts.records_retried += batch.count",
            """
                    self.counts.records_retried += batch.count
                    if batch.count > 1 and outcome.maybe_written:
                        self._split_into_parts(batch, keeps_sequences=True, now=now)
                        return
                    """,
        ),
        families=("D1", "D2"),
    ),
    Mutant(
        "requeue_at_tail",
        "a batch that failed goes behind those that were sent after it",
        Change(
            "_accumulator/partition.py",
            "Partition.insert",
            """
                    if not self.queued or batch.order < self.queued[0].order:
                        self.queued.appendleft(batch)
                    else:
                        insort(self.queued, batch, key=_by_order)
                    """,
            "self.queued.append(batch)",
        ),
        families=("D3", "D5"),
    ),
    Mutant(
        "memory_released_at_send",
        "a batch's memory is lent again while the batch may still be sent again",
        Change(
            "_accumulator/record_accumulator.py",
            "RecordAccumulator.drain",
            "partition.put_on_wire(batch, connection_number, now)",
            """
                    partition.put_on_wire(batch, connection_number, now)
                    if batch.attempts == 1:
                        self._pool.give_back(batch.chunk)
                    """,
        ),
        Change(
            "_accumulator/open_batches.py",
            "OpenBatches.take_lone",
            "partition.put_on_wire(batch, connection_number, now)",
            """
                    partition.put_on_wire(batch, connection_number, now)
                    self._pool.give_back(batch.chunk)
                    """,
        ),
        Change(
            "_sender/completion.py",
            "Completion.release",
            "self._pool.give_back(batch.chunk)",
            """
                    if not batch.attempts:
                        self._pool.give_back(batch.chunk)
                    """,
        ),
        families=("D1", "D8"),
    ),
    Mutant(
        "cancelled_waiter_keeps_bytes",
        "a caller that gives up waiting for memory is counted forever",
        Change("_accumulator/wait_queues.py", "WaitQueues._leave", "self.bytes -= record.size", "pass"),
        Change(
            "_accumulator/wait_queues.py",
            "WaitQueues._appended",
            "self._leave(record)",
            """
                    self._leave(record)
                    self.bytes -= record.size
                    """,
        ),
        Change(
            "_accumulator/wait_queues.py",
            "WaitQueues._fail",
            "self._leave(record)",
            """
                    self._leave(record)
                    self.bytes -= record.size
                    """,
        ),
        families=("D8",),
    ),
    Mutant(
        "wakeup_lost_when_head_waiter_cancelled",
        "when the first waiter gives up, the waiters behind it are never served",
        Change(
            "_accumulator/wait_queues.py",
            "Fronts.serve",
            "queue, is_shown = self._fronts[competitor][0][2], True",
            """
                    queue, is_shown = self._fronts[competitor][0][2], True
                    first = queue.first()
                    is_there = first is not None and first.call_order == call_order
                    """,
        ),
        Change(
            "_accumulator/wait_queues.py",
            "Fronts.serve",
            "is_shown = self.show(queue)",
            "is_shown = is_there and self.show(queue)",
        ),
        families=("D8", "D2"),
    ),
    Mutant(
        "no_correlation_check",
        "a response counts for the oldest request, also if it names another",
        Change(
            "_native/frames.pyx",
            "answer",
            "correlation_id != request[0]",
            "correlation_id < 0 < request[0]",
        ),
        families=("D20",),
    ),
    Mutant(
        "omitted_partition_is_success",
        "what an answer does not mention counts as written",
        Change(
            "_sender/produce_outcome.py",
            "decide",
            """
                    if response is None or response.base_offset < NO_OFFSET:
                        return _unanswered(facts, policy, "the broker's answer does not say what became of the batch")
                    """,
            """
                    if response is None:
                        return Complete(NO_OFFSET)
                    if response.base_offset < NO_OFFSET:
                        return _unanswered(facts, policy, "the broker's answer does not say what became of the batch")
                    """,
        ),
        families=("D20",),
    ),
    Mutant(
        "duplicate_is_failure",
        "a batch of which the broker says that it has it already is reported as failed",
        Change(
            "_sender/produce_outcome.py",
            "_sequence_error",
            """
                    if facts.maybe_written:
                        return Complete(NO_OFFSET, response.log_append_time, response.log_start_offset)
                    """,
            """
                    if facts.maybe_written and response.base_offset >= 0:
                        return Complete(NO_OFFSET, response.log_append_time, response.log_start_offset)
                    """,
        ),
        tests=("tests/sender/test_produce_outcome.py",),
    ),
    Mutant(
        "not_leader_without_refresh",
        "metadata is not asked for the new leader of a partition",
        Change(
            "_protocol/error_codes.py",
            "ErrorCode",
            "(6, 'retriable metadata not_written', 'this broker does not lead the partition')",
            "(6, 'retriable not_written', 'this broker does not lead the partition')",
        ),
        families=("D5", "D6"),
    ),
    Mutant(
        "in_flight_expiry_resets_sequence",
        "records get the sequences of a batch that may still arrive, and are taken for copies",
        Change(
            "_sender/settlement.py",
            "Settlement._give_up",
            "batch.partition.identity.abandon(batch)",
            "batch.partition.identity.next_sequence = batch.identity.base_sequence",
        ),
        families=("D9", "D1"),
    ),
    Mutant(
        "bump_with_others_in_flight",
        "a partition takes a new epoch while batches of the old one are unresolved",
        Change(
            "_accumulator/partition.py",
            "Partition.restamp_if_resolved",
            "self.on_wire or any((batch.is_unresolved for batch in self.queued))",
            "any((batch.is_unresolved for batch in self.queued))",
        ),
        families=("D9", "D7"),
    ),
    Mutant(
        "sequence_overflow",
        "sequences go on behind 2^31 - 1",
        Change(
            "_accumulator/producer_identity.py",
            "sequence_after",
            "(sequence + count) % (MAX_SEQUENCE + 1)",
            "sequence + count",
        ),
        families=("D18",),
    ),
    Mutant(
        "older_leader_epoch_wins",
        "old news of a leader replaces newer",
        Change(
            "_network/cluster_updates.py",
            "_TopicMerge._partitions",
            "[number for number, (old, new) in pairs if new < old]",
            "[number for number, (old, new) in pairs if new < old and new == NO_EPOCH]",
        ),
        families=("D5", "D14"),
    ),
    Mutant(
        "flush_wakes_once",
        "of several who flush, one is told",
        Change(
            "_sender/flush_waiters.py",
            "FlushWaiters._generation_finished",
            """
                    if not finished.done():
                        finished.set_result(None)
                    """,
            """
                    if not finished.done():
                        finished.set_result(None)
                    break
                    """,
        ),
        families=("D1", "D2"),
    ),
    Mutant(
        "close_leaves_futures",
        "what waits in a queue when the producer is closed never ends",
        Change("_producer/runtime.py", "ProducerRuntime._fail_everything", "self.wait_queues.fail_all(error)", "pass"),
        families=("D16",),
    ),
    Mutant(
        "cancel_after_append_removes_record",
        "who is cancelled takes records back that were sent, and those of others with it",
        Change(
            "_producer/send_methods.py",
            "SendMethods.send_and_wait",
            "return await (await self.enqueue(topic, value, **fields))",
            """
                    delivery = await self.enqueue(topic, value, **fields)
                    try:
                        return await delivery
                    except BaseException as error:
                        if self._running is not None and (not delivery.done()):
                            self._running.take_back(delivery, error)
                        raise
                    """,
        ),
        Change(
            "_producer/runtime.py",
            "ProducerRuntime",
            """
                    def new_result(self) -> BatchResult:
                        return BatchResult(self.loop, None)
                    """,
            """
                    def new_result(self) -> BatchResult:
                        return BatchResult(self.loop, None)
                    def take_back(self, delivery, cause) -> None:
                        from aioproducer.errors import Outcome
                        partition = self.accumulator.partitions.find(delivery._batch_result.topic_partition)
                        for batch in list(partition.queued):
                            if batch.result is delivery._batch_result:
                                error = KafkaError(f'withdrawn: {cause!r}', outcome=Outcome.NOT_WRITTEN)
                                partition.queued.remove(batch)
                                self.settlement._fail(batch, error, self.loop.time())
                    """,
        ),
        families=("D8", "D1"),
    ),
    Mutant(
        "acks_0_waits",
        "with acks=0 an answer is awaited that never comes",
        Change("_sender/sender.py", "ProduceRequest.encode", "acks != 0", "True"),
        families=("D4",),
    ),
    Mutant(
        "throttle_ignored",
        "KIP-219: a broker that asks for a pause gets none",
        Change(
            "_network/node_connection.py",
            "NodeConnection.ready_connection",
            "connection is None or self.is_throttled or (not connection.can_send)",
            "connection is None or (not connection.can_send)",
        ),
        families=("D19",),
    ),
    Mutant(
        "shared_timestamp",
        "all records of a batch are reported with the time of its first",
        Change(
            "_native/append.pyx",
            "_append",
            """
                    write(self, builder, record)
                    return delivery
                    """,
            """
                    write(self, builder, record)
                    delivery._timestamp = builder.base_timestamp
                    return delivery
                    """,
        ),
        families=("D1",),
    ),
)
