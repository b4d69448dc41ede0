"""Bugs that break an invariant of sending which nothing else guards."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

INVARIANTS: Final = (
    Mutant(
        name="lost_connection_is_not_written",
        breaks="what went down with a connection is believed not to be written",
        families=("D9", "D1"),
        changes=(
            Change(
                "_sender/produce_outcome.py",
                "_unanswered",
                "Retry(maybe_written=True, refresh_metadata=True)",
                "Retry(maybe_written=False, refresh_metadata=True)",
            ),
        ),
    ),
    Mutant(
        name="last_answer_clears_ambiguity",
        breaks="a refused second attempt makes the first, unanswered one forgotten",
        families=("D9",),
        changes=(
            Change(
                "_sender/settlement.py",
                "Settlement._retry",
                "batch.maybe_written or outcome.maybe_written",
                "outcome.maybe_written",
            ),
        ),
    ),
    Mutant(
        name="pipelines_before_first_answer",
        breaks="a second batch is sent to a broker that may refuse the first",
        families=("D1", "D7"),
        changes=(
            Change(
                "_accumulator/partition_queue.py",
                "PartitionQueue.window",
                "self.parts or not self.identity.is_confirmed(connection, now)",
                "self.parts",
            ),
        ),
    ),
    Mutant(
        name="pipelines_without_idempotence",
        breaks="without sequences several batches of a partition are on the wire",
        families=("D3",),
        changes=(
            Change(
                "_producer/component_settings.py",
                "accumulator_settings",
                "config.max_in_flight_requests_per_connection if config.enable_idempotence else 1",
                "config.max_in_flight_requests_per_connection",
            ),
        ),
    ),
    Mutant(
        name="backoff_without_timer",
        breaks="a batch that waits for another attempt is forgotten",
        families=("D2", "D1"),
        changes=(
            Change(
                "_accumulator/record_accumulator.py",
                "RecordAccumulator.put_back",
                "self._timers.schedule(not_before, partial(self._backoff_over, batch.queue))",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="moved_partition_stays_offered",
        breaks="a partition whose leader moved waits in the queue of the old one",
        families=("D5", "D14"),
        changes=(Change("_accumulator/record_accumulator.py", "ReadyNodes.move", "self.withdraw(queue)", "pass"),),
    ),
    Mutant(
        name="shared_chunk_returned_by_first_part",
        breaks="the memory of a split batch is lent again when one of its parts is done",
        families=("D17",),
        changes=(Change("_accumulator/buffer_pool.py", "BufferPool.give_back", "holders > 1", "holders > 2"),),
    ),
    Mutant(
        name="large_record_overtaken_for_ever",
        breaks="while the earliest call gets nothing, later ones go on taking the memory that it waits for",
        families=("D4", "D8", "D1"),
        changes=(
            Change(
                "_accumulator/memory_wait_queues.py",
                "BufferWaiters.serve",
                "self._open_batches.keep_common_memory(is_kept=True)",
                "self._open_batches.keep_common_memory(is_kept=False)",
            ),
        ),
    ),
    Mutant(
        name="waiting_does_not_count_towards_deadline",
        breaks="a record's time begins when it gets memory, not at the call",
        families=("D8", "D9"),
        changes=(
            Change(
                "_accumulator/open_batches.py",
                "OpenBatches.take_over_waiting_record",
                "batch.called_at = min(batch.called_at, called_at)",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="deadlines_watched_once",
        breaks="after the first deadline of a partition the others are not watched",
        families=("D9",),
        changes=(
            Change(
                "_sender/sender.py", "Sender._end_overdue", "deadlines.watch_again(queue)", "queue.expiry_timer = None"
            ),
        ),
    ),
    Mutant(
        name="flush_ends_before_its_own",
        breaks="a flush waits for what was accepted before the flush before it",
        families=("D1", "D2"),
        changes=(
            Change(
                "_accumulator/flush_generations.py",
                "FlushGenerations.is_finished",
                "unfinished > generation",
                "unfinished >= generation",
            ),
        ),
    ),
    Mutant(
        name="placed_record_leaves_its_flush",
        breaks="a record that had to wait for memory is finished for its flush when it got it",
        families=("D8", "D1"),
        changes=(
            Change(
                "_accumulator/open_batches.py",
                "OpenBatches.take_over_waiting_record",
                """
                    if generation < batch.generation:
                        self._generations.enter_again(generation)
                        self._generations.leave(batch.generation)
                        batch.generation = generation
                    """,
                "pass",
            ),
        ),
    ),
    Mutant(
        name="parts_share_a_sequence",
        breaks="both halves of a split batch begin with the same sequence",
        families=("D17",),
        changes=(
            Change(
                "_accumulator/batch_splitter.py",
                "_identity_from",
                "batch.identity._replace(base_sequence=sequence_after(batch.identity.base_sequence, first))",
                "batch.identity",
            ),
        ),
    ),
    Mutant(
        name="split_of_ambiguous_batch",
        breaks="a batch that may be written is split and sent again",
        families=("D17",),
        changes=(Change("_sender/produce_outcome.py", "decide", "ambiguous or facts.maybe_written", "ambiguous"),),
    ),
    Mutant(
        name="freed_place_wakes_nobody",
        breaks="a node is free again, and what waits for it waits for something else to happen",
        families=("D2", "D19"),
        changes=(
            Change(
                "_sender/sender.py",
                "Sender._wake_if_held_back",
                "self._accumulator.ready.count(node_id) or self._wait_queues.records or self._identity.is_missing",
                "self._wait_queues.records or self._identity.is_missing",
            ),
        ),
    ),
    Mutant(
        name="unknown_code_is_success",
        breaks="what a newer broker refuses counts as written",
        families=("D20", "D14"),
        changes=(
            Change(
                "_sender/produce_outcome.py",
                "decide",
                "Fail(Outcome.UNKNOWN, response.error_code, ErrorCode.in_words(response.error_code))",
                "_written(response, facts)",
            ),
        ),
    ),
)
