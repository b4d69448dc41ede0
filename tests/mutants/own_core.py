"""Bugs of what decides: outcomes, order, identity, memory, deadlines, flush, splitting."""

from tests.mutants.mutant import Change, Mutant

OWN_CORE = (
    Mutant(
        name="lost_connection_is_not_written",
        breaks="C3: what went down with a connection is believed not to be written",
        families=("D9", "D1"),
        changes=(
            Change(
                "core/produce_outcome.py",
                "        return Retry(maybe_written=True, refresh_metadata=True)\n",
                "        return Retry(maybe_written=False, refresh_metadata=True)\n",
            ),
        ),
    ),
    Mutant(
        name="last_answer_clears_ambiguity",
        breaks="C3, I8: a refused second attempt makes the first, unanswered one forgotten",
        families=("D9",),
        changes=(
            Change(
                "settlement.py",
                "        batch.maybe_written = batch.maybe_written or outcome.maybe_written\n",
                "        batch.maybe_written = outcome.maybe_written\n",
            ),
        ),
    ),
    Mutant(
        name="pipelines_before_first_answer",
        breaks="C2: a second batch is sent to a broker that may refuse the first",
        families=("D1", "D7"),
        changes=(
            Change(
                "core/partition_queue.py",
                "        if self.parts or not self.identity.is_confirmed(connection, now):\n",
                "        if self.parts:\n",
            ),
        ),
    ),
    Mutant(
        name="pipelines_without_idempotence",
        breaks="C2: without sequences several batches of a partition are on the wire",
        families=("D3",),
        changes=(
            Change(
                "settings.py",
                "max_in_flight=config.max_in_flight_requests_per_connection if config.enable_idempotence else 1",
                "max_in_flight=config.max_in_flight_requests_per_connection",
            ),
        ),
    ),
    Mutant(
        name="new_connection_overtakes_old",
        breaks="C2: a batch goes out on a new connection while one before it is on the old",
        families=("D3",),
        changes=(
            Change(
                "core/partition_queue.py",
                "        if self.on_wire and (\n",
                "        if self.on_wire and self.on_wire[-1].connection == connection and (\n",
            ),
        ),
    ),
    Mutant(
        name="backoff_without_timer",
        breaks="I10: a batch that waits for another attempt is forgotten",
        families=("D2", "D1"),
        changes=(
            Change(
                "core/record_accumulator.py",
                "        self._timers.schedule(not_before, partial(self._backoff_over, batch.queue))\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="moved_partition_stays_offered",
        breaks="I10: a partition whose leader moved waits in the queue of the old one",
        families=("D5", "D14"),
        changes=(
            Change(
                "core/record_accumulator.py",
                "        self.ready.withdraw(queue)\n        queue.leader_id = leader_id\n",
                "        queue.leader_id = leader_id\n",
            ),
        ),
    ),
    Mutant(
        name="shared_chunk_returned_by_first_part",
        breaks="C5: the memory of a split batch is lent again when one of its parts is done",
        families=("D17",),
        changes=(
            Change(
                "core/buffer_pool.py",
                "        if holders > 1:\n",
                "        if holders > 2:\n",
            ),
        ),
    ),
    Mutant(
        name="compressed_loan_does_not_shrink",
        breaks="I15: what compression saves is lost to the buffer",
        families=("D1", "D2"),
        changes=(
            Change(
                "core/buffer_pool.py",
                "        self._count(payer, smaller.capacity - chunk.capacity)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="large_record_overtaken_for_ever",
        breaks="I15: while the earliest call gets nothing, later ones go on taking the memory that it waits for",
        families=("D4", "D8", "D1"),
        changes=(
            Change(
                "core/memory_lines.py",
                "keep_common_memory(is_kept=True)  # for the first who got nothing",
                "keep_common_memory(is_kept=False)",
            ),
        ),
    ),
    Mutant(
        name="common_memory_kept_for_ever",
        breaks="I15: once somebody has waited, the memory that all nodes share is lent to nobody",
        families=("D4", "D8", "D1"),
        changes=(
            Change(
                "core/memory_lines.py",
                "        self._open_batches.keep_common_memory(is_kept=False)\n        rivals",
                "        rivals",
            ),
            Change(
                "core/memory_lines.py",
                "        self._open_batches.note_shortage(is_short=False)\n"
                "        self._open_batches.keep_common_memory(is_kept=False)",
                "        self._open_batches.note_shortage(is_short=False)",
            ),
        ),
    ),
    Mutant(
        name="waiting_does_not_count_towards_deadline",
        breaks="I2: a record's time begins when it gets memory, not at the call",
        families=("D8", "D9"),
        changes=(
            Change(
                "core/open_batches.py",
                "        batch.called_at = min(batch.called_at, called_at)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="later_deadline_wins",
        breaks="I2: of two deadlines of a partition the later is watched",
        families=("D9", "D8"),
        changes=(
            Change(
                "core/delivery_deadlines.py",
                "            if queue.expiry_timer.when <= when:\n",
                "            if queue.expiry_timer.when >= when:\n",
            ),
        ),
    ),
    Mutant(
        name="deadlines_watched_once",
        breaks="I2: after the first deadline of a partition nobody looks at the others",
        families=("D9",),
        changes=(
            Change(
                "sender.py",
                "            deadlines.watch_again(queue)\n",
                "            queue.expiry_timer = None\n",
            ),
        ),
    ),
    Mutant(
        name="flush_ends_before_its_own",
        breaks="I19: a flush waits for what was accepted before the flush before it",
        families=("D1", "D2"),
        changes=(
            Change(
                "core/flush_generations.py",
                "        return all(unfinished > generation for unfinished in self._unfinished)\n",
                "        return all(unfinished >= generation for unfinished in self._unfinished)\n",
            ),
        ),
    ),
    Mutant(
        name="placed_record_leaves_its_flush",
        breaks="I19: a record that had to wait for memory is finished for its flush when it got it",
        families=("D8", "D1"),
        changes=(
            Change(
                "core/open_batches.py",
                "        if generation < batch.generation:\n            self._generations.enter_again(generation)\n"
                "            self._generations.leave(batch.generation)\n            batch.generation = generation\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="parts_share_a_sequence",
        breaks="I5: both halves of a split batch begin with the same sequence",
        families=("D17",),
        changes=(
            Change(
                "core/batch_splitter.py",
                "    return batch.identity._replace(base_sequence=sequence_after(batch.identity.base_sequence, "
                "first))\n",
                "    return batch.identity\n",
            ),
        ),
    ),
    Mutant(
        name="split_of_ambiguous_batch",
        breaks="C4: a batch that may be written is split and sent again",
        families=("D17",),
        changes=(
            Change(
                "core/produce_outcome.py",
                "    outcome = Outcome.UNKNOWN if ambiguous or facts.maybe_written else Outcome.NOT_WRITTEN\n",
                "    outcome = Outcome.UNKNOWN if ambiguous else Outcome.NOT_WRITTEN\n",
            ),
        ),
    ),
    Mutant(
        name="freed_place_wakes_nobody",
        breaks="I20: a node is free again, and what waits for it waits for something else to happen",
        families=("D2", "D19"),
        changes=(
            Change(
                "sender.py",
                "        if self._accumulator.ready.count(node_id) or self._lines.records",
                "        if self._lines.records",
            ),
        ),
    ),
    Mutant(
        name="one_request_a_turn",
        breaks="I20: a node that could take another request gets one only",
        families=("D2", "D1"),
        changes=(
            Change(
                "sender.py",
                "            if not ready.count(node_id):\n                return\n",
                "            return\n",
            ),
        ),
    ),
    Mutant(
        name="last_come_first_served",
        breaks="I20: whoever became ready first is sent last",
        families=("D2", "D8"),
        changes=(
            Change(
                "core/ready_nodes.py",
                "        queue, _ = ready.popitem(last=False)\n",
                "        queue, _ = ready.popitem()\n",
            ),
        ),
    ),
    Mutant(
        name="new_ones_push_in",
        breaks="I20: a partition that becomes ready goes before those that wait",
        families=("D2", "D8"),
        changes=(
            Change(
                "core/ready_nodes.py",
                "            self._of(queue.leader_id)[queue] = None\n",
                "            self._of(queue.leader_id)[queue] = None\n"
                "            self._of(queue.leader_id).move_to_end(queue, last=False)\n",
            ),
        ),
    ),
    Mutant(
        name="refused_records_are_cut_out_one_by_one",
        breaks="I27: the loop stands still while thousands of records become batches of their own",
        tests=("tests/journeys/test_steps_are_short.py",),
        changes=(
            Change("core/batch_splitter.py", "MOST_CUT_OUT: Final = 64\n", "MOST_CUT_OUT: Final = 2**31\n"),
            Change(
                "core/batch_splitter.py",
                "        if index == stop and refused[index] == reason and stop > first:\n",
                "        if index == stop and stop > first and not stop:\n",
            ),
        ),
    ),
    Mutant(
        name="compressed_where_it_stands",
        breaks="I27: the loop stands still while a large batch is compressed",
        tests=("tests/journeys/test_steps_are_short.py",),
        changes=(
            Change(
                "sealing.py",
                "            if batch.size <= IN_LOOP_BYTES:\n",
                "            if batch.size <= 16 * IN_LOOP_BYTES:\n",
            ),
        ),
    ),
    Mutant(
        name="unknown_code_is_success",
        breaks="I21: what a newer broker refuses counts as written",
        families=("D20", "D14"),
        changes=(
            Change(
                "core/produce_outcome.py",
                "        return Fail(Outcome.UNKNOWN, answer.error_code, ErrorCode.in_words(answer.error_code))\n",
                "        return _written(answer, facts)\n",
            ),
        ),
    ),
)
