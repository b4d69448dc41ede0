"""Bugs of who waits for whom: deadlines, flushes, memory, lines; some survived when they were first tried."""

from tests.mutants.mutant import Change, Mutant

WAITING_AND_MEMORY = (
    Mutant(
        name="split_part_leaves_its_flush",
        breaks="I19: a flush does not wait for the parts of a batch that was split meanwhile",
        families=("D17",),
        changes=(
            Change(
                "core/batch_splitter.py",
                "        part.generation = batch.generation\n",
                "        part.generation = self._generations.enter()\n",
            ),
            Change(
                "core/batch_splitter.py",
                "        self._generations.enter_again(batch.generation)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="put_back_first_is_not_offered",
        breaks="I20: a partition that found no room in a request stays with its old leader when it moves",
        tests=("tests/core/test_ready_nodes.py",),
        changes=(
            Change(
                "core/ready_nodes.py",
                "        assert queue.leader_id is not None\n        queue.is_offered = True\n",
                "        assert queue.leader_id is not None\n",
            ),
        ),
    ),
    Mutant(
        name="open_batch_has_no_deadline",
        breaks="I2: who looks for the next deadline of a partition forgets its open batch",
        families=(
            "D20",
            "D9",
        ),
        changes=(
            Change(
                "core/partition_queue.py",
                "        candidates += [self.open_batch] if self.open_batch is not None else []\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="reserve_forgotten_when_nodes_change",
        breaks="I15: what a node has of its reserve is forgotten when another node comes",
        families=("D5",),
        changes=(
            Change(
                "core/buffer_pool.py",
                "            self._used.setdefault(node_id, 0)\n",
                "            self._used[node_id] = 0\n",
            ),
        ),
    ),
    Mutant(
        name="bound_is_the_sum_of_shares",
        breaks="I15: reserves that are rounded up come on top of buffer_memory",
        families=("D8",),
        changes=(
            Change(
                "core/buffer_pool.py",
                "        if self.lent_bytes + capacity > self.total_bytes:\n            return None\n        if may",
                "        if may",
            ),
        ),
    ),
    Mutant(
        name="refusal_with_an_offset_is_not_written",
        breaks="C6, C3: a refusal that names an offset counts as not written",
        families=("D20",),
        changes=(
            Change(
                "core/produce_outcome.py",
                "    ambiguous = not (row.not_written and (answer.base_offset == NO_OFFSET or policy.acks == 1))\n",
                "    ambiguous = not row.not_written\n",
            ),
        ),
    ),
    Mutant(
        name="line_is_watched_once",
        breaks="I2: after the first who waited for memory in vain nobody of the line is told",
        families=("D8",),
        changes=(
            Change(
                "core/waiting_lines.py",
                "            self._fail(record, BufferTimeoutError(message, elapsed_s=now - record.called_at))\n"
                "        self._watch(line, partial(self._memory_too_late, line))\n",
                "            self._fail(record, BufferTimeoutError(message, elapsed_s=now - record.called_at))\n",
            ),
        ),
    ),
    Mutant(
        name="lines_keep_their_old_leaders",
        breaks="I20: who waits for memory stands behind others of a node that does not lead the partition any more",
        tests=("tests/journeys/test_memory_runs_out.py",),
        changes=(
            Change(
                "running_producer.py",
                "        self.lines.leaders_changed()\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="flushed_record_lingers_when_placed",
        breaks="I20: a record that a flush waits for lingers once its topic is known",
        families=("D2",),
        tests=("tests/core/test_waiting_lines.py",),
        changes=(
            Change(
                "core/open_batches.py",
                "        if batch is queue.open_batch and generation < self._generations.current:\n"
                "            self._make_ready(queue, batch)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="old_and_young_share_a_batch",
        breaks="I2: a record that waited shares the deadline of one that was called long before it",
        families=("D8",),
        tests=("tests/core/test_waiting_lines_bounds.py",),
        changes=(
            Change(
                "core/memory_lines.py",
                "            self._open_batches.close_if_apart(slot, record.called_at)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="adopted_record_is_not_watched",
        breaks="I2: the deadline of a batch is not moved when an older record joins it",
        families=("D8",),
        changes=(
            Change(
                "core/open_batches.py",
                "        batch.called_at = min(batch.called_at, called_at)\n        self._deadlines.watch(batch)\n",
                "        batch.called_at = min(batch.called_at, called_at)\n",
            ),
        ),
    ),
    Mutant(
        name="epoch_after_the_last",
        breaks="CRASH: epochs go on behind 32767",
        families=("D18",),
        changes=(
            Change(
                "core/producer_identity.py",
                "        return self._last_epoch if self._last_epoch <= LAST_EPOCH else None\n",
                "        return self._last_epoch if self._last_epoch <= LAST_EPOCH + 1 else None\n",
            ),
        ),
    ),
    Mutant(
        name="overdue_memory_is_granted_too_late",
        breaks="I20: memory of what is overdue is lent when something else happens",
        families=("D8",),
        tests=("tests/test_sender.py",),
        changes=(
            Change(
                "sender.py",
                "        if self._accumulator.deadlines.due:\n"
                "            self._end_overdue(now)\n"
                "        self._is_woken = False  # what these two have made possible is done below, in this turn\n"
                "        if self._lines.records:\n"
                "            self._lines.serve()\n",
                "        if self._lines.records:\n"
                "            self._lines.serve()\n"
                "        if self._accumulator.deadlines.due:\n"
                "            self._end_overdue(now)\n"
                "        self._is_woken = False  # what these two have made possible is done below, in this turn\n",
            ),
        ),
    ),
    Mutant(
        name="nobody_waits_for_a_large_batch",
        breaks="FULL: where memory is short, all batches are small",
        tests=("tests/core/test_open_batches_in_short_memory.py",),
        changes=(
            Change(
                "core/open_batches.py",
                "        is_patient = self._pool.is_roomy and queue.is_moving ",
                "        is_patient = False ",
            ),
        ),
    ),
    Mutant(
        name="held_up_partition_waits_for_a_large_batch",
        breaks="I15: a partition that gives nothing back keeps the first claim on memory for more than it needs",
        tests=("tests/core/test_open_batches_in_short_memory.py",),
        changes=(
            Change(
                "core/partition_queue.py",
                "(self.on_wire or self.queued) and not self.is_held_up and",
                "(self.on_wire or self.queued) and",
            ),
        ),
    ),
    Mutant(
        name="keyless_records_forget_where_there_was_room",
        breaks="PACE: each keyless record stands in line although the last one found room",
        tests=("tests/core/test_partitions_in_use.py",),
        changes=(
            Change(
                "core/partitions_in_use.py",
                "        self._last_chosen[topic.topic] = slot\n        topic.stick_to(slot.partition)\n",
                "        if self._last_chosen.get(topic.topic) is not slot:\n"
                "            self._last_chosen[topic.topic] = slot\n"
                "            topic.stick_to(slot.partition)\n",
            ),
        ),
    ),
    Mutant(
        name="asks_for_ever_for_partitions_that_are_gone",
        breaks="AGE: a partition without a leader is asked about when it has nothing to send any more",
        families=("D14",),
        tests=("tests/core/test_record_accumulator.py",),
        changes=(
            Change(
                "core/record_accumulator.py",
                "and queue.first_sendable() is None:\n                self.ready.withdraw(queue)\n",
                "and queue.first_sendable() is None:\n                break\n",
            ),
        ),
    ),
    Mutant(
        name="id_is_learnt_from_old_news",
        breaks="I10: a topic made again while brokers learnt of ids never has its new leaders",
        families=("D14",),
        tests=("tests/core/test_cluster.py",),
        changes=(
            Change(
                "core/cluster.py",
                "            self._has_old_news = True\n            return old\n",
                "            return old\n",
            ),
        ),
    ),
)
