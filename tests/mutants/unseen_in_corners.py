"""Bugs in corners where neither the simulation nor a test looked when they were first tried; now tests do."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


UNSEEN_IN_CORNERS = (
    _mutant(
        "node_keeps_its_old_port",
        "a node that listens at another port is looked for at the old one",
        "tests/network/test_node_links.py",
        Change(
            "network/node_links.py", "(node.host, node.port) == (other.host, other.port)\n", "node.host == other.host\n"
        ),
    ),
    _mutant(
        "bootstrap_for_ever",
        "AGE: after a new beginning only the bootstrap addresses are asked, for ever",
        "tests/network/test_rebootstrap.py",
        Change(
            "network/node_links.py", "        self._asks_known = True\n\n    async def", "        pass\n\n    async def"
        ),
    ),
    _mutant(
        "doubts_lost_with_a_failed_refresh",
        "I10: lower epochs of a topic made again are not believed at the first refusal",
        "tests/network/test_metadata_refresher.py",
        Change(
            "network/metadata_refresher.py",
            "        suspected = frozenset(self._suspected)\n",
            "        suspected, self._suspected = frozenset(self._suspected), set()\n",
        ),
    ),
    _mutant(
        "quiet_time_counts_as_stall",
        "acks=0: what is written after a quiet time closes a connection that is busy",
        "tests/network/test_connection_acks_0.py",
        Change(
            "network/outgoing_stream.py",
            ("        if not self._unwritten:\n            self._moved_at = max(self._moved_at, now)\n"),
            "",
        ),
    ),
    _mutant(
        "looks_rarely_for_ever",
        "acks=0: after one slow moment every end is told late",
        "tests/network/test_connection_acks_0.py",
        Change(
            "network/outgoing_stream.py",
            "            self._gone, self._poll_delay_s = gone, _FIRST_POLL_S\n",
            "            self._gone = gone\n",
        ),
    ),
    _mutant(
        "older_features_believed",
        "a broker that is behind turns transactions back to their older protocol",
        "tests/network/test_cluster_features.py",
        Change(
            "network/environment.py", "        if found.epoch >= self.newest.epoch:\n", "        if found.epoch >= 0:\n"
        ),
    ),
    _mutant(
        "patience_of_the_one_before",
        "I10: who leaves for good after another who did keeps the turn",
        "tests/journeys/test_transaction_left_alone.py",
        Change(
            "transactions/endings.py",
            ("        self._stop_patience()\n        self._ending = None\n"),
            "        self._ending = None\n",
        ),
    ),
    _mutant(
        "abandoned_after_it_failed",
        "I10: a transaction that has failed and is abandoned stays open",
        "tests/journeys/test_transaction_left_alone.py",
        Change(
            "transactions/endings.py",
            "        if self._manager.state in {_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR}:\n",
            "        if self._manager.state is _STATE.IN_TRANSACTION:\n",
        ),
    ),
    _mutant(
        "offset_zero_is_nothing",
        "a group that has committed the beginning is told that it has committed nothing",
        "tests/journeys/test_transaction_requests_lost.py",
        Change(
            "transactions/committed_offsets.py",
            "            is_committed = fetched.offset != NO_OFFSET\n",
            "            is_committed = fetched.offset > 0\n",
        ),
    ),
    _mutant(
        "lost_question_ends_the_call",
        "one lost connection ends a question for committed offsets",
        "tests/journeys/test_transaction_requests_lost.py",
        Change(
            "transactions/committed_offsets.py",
            ("            except BrokerConnectionError as error:\n                attempts.last = error\n"),
            ("            except BrokerConnectionError:\n                raise\n"),
        ),
    ),
    _mutant(
        "closed_batch_told_again",
        "a partitioner is told of each closed batch with every record",
        "tests/journeys/test_serializers_and_partitioners.py",
        Change(
            "preparation.py",
            "        self.closed_batches.clear()  # before",
            "        # before",
        ),
    ),
    _mutant(
        "lost_attempt_forgotten",
        "C3: what was lost on the wire is not written, if no version is common any more",
        "tests/test_sender_errors.py",
        Change(
            "sender.py",
            "    return Outcome.UNKNOWN if batch.maybe_written else Outcome.NOT_WRITTEN\n",
            "    return Outcome.NOT_WRITTEN\n",
        ),
    ),
    _mutant(
        "used_up_epochs_wake_nobody",
        "I20: no other id is asked for before the next record",
        "tests/test_sender.py",
        Change("sender.py", " or self._lines.records or self._identity.is_missing:\n", " or self._lines.records:\n"),
    ),
    _mutant(
        "zero_id_beside_a_known_one",
        "I10: a topic whose id is not known is named by none",
        "tests/test_produce_request.py",
        Change(
            "produce_request.py", "if NO_TOPIC_ID in self._names else", "if self._names.keys() == {NO_TOPIC_ID} else"
        ),
    ),
    _mutant(
        "tidied_heap_is_no_heap",
        "I20: timers come late after many were cancelled",
        "tests/core/test_timer_heap.py",
        Change(
            "core/timer_heap.py",
            ("            heapify(self._heap)\n            self._cancelled = 0\n"),
            "            self._cancelled = 0\n",
        ),
    ),
    _mutant(
        "bulk_looks_once",
        "C1: records that are on their way still are told as delivered",
        "tests/journeys/test_results_of_many.py",
        Change("bulk_delivery.py", "while pending := [delivery for", "if pending := [delivery for"),
    ),
    _mutant(
        "bulk_given_up_has_looked",
        "I19: what a wait for many that was given up did not see is never told",
        "tests/journeys/test_results_of_many.py",
        Change(
            "bulk_delivery.py",
            "    counts_as_look: Final = False\n",
            "    counts_as_look: Final = True\n",
        ),
    ),
    _mutant(
        "unknown_offset_is_an_offset",
        "C6: offsets of which no broker told one begin before the log",
        "tests/journeys/test_results_of_many.py",
        Change("bulk_delivery.py", "    if home.base_offset < 0 or found.first < 0:\n", "    if found.first < -1:\n"),
    ),
    _mutant(
        "refusal_holds_a_forgotten_topic",
        "I10: a record refused for itself after a long pause keeps all later ones back",
        "tests/journeys/test_idle_producer.py",
        Change(
            "admission.py",
            (
                "        try:\n"
                "            return self._try_append(record)\n"
                "        finally:\n"
                "            slots.held += 1\n"
            ),
            ("        delivery = self._try_append(record)\n        slots.held += 1\n        return delivery\n"),
        ),
    ),
    _mutant(
        "stuck_to_what_is_gone",
        "CRASH: a keyless record goes to a partition behind the last",
        "tests/core/test_partitions_renewed.py",
        Change("core/partitions_in_use.py", "            topic.stick_to(-1)\n", ""),
    ),
    _mutant(
        "held_up_loses_its_turn",
        "I20: memory that comes back as a partition is refused is not offered to who waits for it",
        "tests/core/test_memory_lines.py",
        Change(
            "core/memory_lines.py",
            "(name := _rival_of(place)) != rival:\n                self._let_compete(name, rivals)\n",
            "(name := _rival_of(place)) != rival:\n                pass\n",
        ),
    ),
    _mutant(
        "every_leaderless_partition_is_looked_at",
        "I27: records of other topics pay for thousands of partitions that have no leader",
        "tests/core/test_leaderless_partitions.py",
        Change(
            "core/record_accumulator.py",
            "            while (queue := next(iter(queues), None)) is not None and queue.first_sendable() is None:\n",
            "            for queue in [queue for queue in queues if queue.first_sendable() is None]:\n",
        ),
    ),
    _mutant(
        "every_held_up_partition_is_tried",
        "I27: partitions that are held up, and have records that wait for memory, take all time of the loop",
        "tests/core/test_memory_lines.py",
        Change("core/memory_lines.py", "    return HELD_UP if queue", "    return place if queue"),
    ),
    _mutant(
        "recovered_is_not_looked_for",
        "I20: a partition that has recovered waits behind another that has not",
        "tests/core/test_memory_lines.py",
        Change("core/memory_lines.py", "        self._release_recovered()\n", ""),
    ),
    _mutant(
        "copy_beyond_the_bound",
        "I15: the copy of a shared chunk is allocated beside all that is free",
        "tests/core/test_shared_chunks.py",
        Change(
            "core/buffer_pool.py",
            ("        if payer != _UNPACKING:\n            self._shrink_free_lists(self.unallocated_bytes - size)\n"),
            "",
        ),
    ),
    _mutant(
        "unpacked_needs_room_inside",
        "a part that was unpacked beside a full buffer is not compressed again",
        "tests/core/test_shared_chunks.py",
        Change("core/buffer_pool.py", "is_full = payer != _UNPACKING and self.lent_bytes", "is_full = self.lent_bytes"),
    ),
    _mutant(
        "last_holder_is_one_of_several",
        "the last part of a batch is not compressed again in a full buffer",
        "tests/core/test_shared_chunks.py",
        Change("core/buffer_pool.py", "        if holders > 1 or (holders and chunk.exports):", "        if holders:"),
    ),
    _mutant(
        "large_records_never_fill",
        "batches of large records stay as small as they once had to be",
        "tests/core/test_batch_limits.py",
        Change("core/batch_limits.py", " or uncompressed * (records + 1) > self.of(topic) * records\n", "\n"),
    ),
    _mutant(
        "ready_and_given_up",
        "I23: a producer that was ready as its caller was cancelled stays open",
        "tests/journeys/test_start_given_up.py",
        Change(
            "lifetime.py", ("            await self.close(0)\n        else:\n"), ("            pass\n        else:\n")
        ),
    ),
    _mutant(
        "refused_for_another_pauses",
        "records behind one that is too large wait out a pause each, and expire",
        "tests/journeys/test_large_and_refused_records.py",
        Change("settlement.py", "0.0 if leader_moved or outcome.is_consequence else", "0.0 if leader_moved else"),
    ),
    _mutant(
        "refused_for_another_uses_up_retries",
        "records behind one that was refused have fewer retries left",
        "tests/test_settlement.py",
        Change("settlement.py", "+= outcome.is_soon or outcome.is_consequence", "+= outcome.is_soon"),
    ),
    _mutant(
        "refused_behind_a_gap_pauses",
        "records behind one that has left a gap wait out a pause each, and expire",
        "tests/journeys/test_large_and_refused_records.py",
        Change("settlement.py", "            is_behind_gap=identity.is_changing,\n", ""),
    ),
    _mutant(
        "lingers_end_one_by_one",
        "each partition with a trickle takes a request of its own",
        "tests/journeys/test_linger.py",
        Change("core/open_batches.py", "for each in [*self._open[queue]]:", "for each in (queue,):"),
    ),
    _mutant(
        "choice_ends_by_bytes_only",
        "awaited keyless records stay with a slow node for a batch's worth of bytes",
        "tests/journeys/test_keyless_records.py",
        Change("core/partitions_in_use.py", "now >= chosen_at + _LONGEST_CHOICE_S", "False"),
    ),
    _mutant(
        "fenced_is_told_twice",
        "a close hides the error that a fenced producer ends with",
        "tests/journeys/test_transaction_failures.py",
        Change(
            "transactions/endings.py",
            "            if ending.is_told:\n                self._forget_what_was_told(ending)\n",
            "",
        ),
    ),
    _mutant(
        "accepted_is_not_said",
        "who cancels a call behind its line never learns that the record goes on",
        "tests/cancellation/test_behind_the_line.py",
        Change(
            "admission.py", "            elif record.result.error is None:\n", "            elif record.result.done:\n"
        ),
    ),
    _mutant(
        "hints_one_by_one",
        "all partitions of a topic are copied for each leader that an answer names",
        "tests/network/test_leader_hints.py",
        Change(
            "network/metadata_refresher.py",
            "        cluster = self.cluster.with_leader_hints(hints, topic_ids=topic_ids, endpoints=endpoints)\n",
            (
                "        cluster, nodes = self.cluster, tuple(endpoints)\n"
                "        for place, leader in hints.items():\n"
                "            hint = {place: leader}\n"
                "            cluster = cluster.with_leader_hints(hint, topic_ids=topic_ids, endpoints=nodes)\n"
            ),
        ),
    ),
    _mutant(
        "metadata_without_news_ten_times_a_second",
        "metadata that brings nothing new is asked for without growing pauses while partitions are refused",
        "tests/network/test_metadata_pauses.py",
        Change(
            "network/metadata_refresher.py",
            "        self._attempts = 0 if has_news and is_all_there else self._attempts + 1\n",
            "        self._attempts = 0 if is_all_there else self._attempts + 1\n",
        ),
    ),
    _mutant(
        "age_of_metadata_counts_as_repetition",
        "after quiet hours the second refresh that somebody wants waits for a second",
        "tests/network/test_metadata_pauses.py",
        Change(
            "network/metadata_refresher.py",
            "        if not self._is_wanted():\n            self._attempts = 0 ",
            "        if not self._is_wanted():\n            pass ",
        ),
    ),
    _mutant(
        "lost_node_wakes_an_idle_producer",
        "AGE: a producer wakes once a second for ever after a broker has closed a connection that nobody needs",
        "tests/network/test_metadata_while_nodes_fail.py",
        Change(
            "network/node_links.py",
            "any(link.has_failed and link.is_connecting for link in self.known())",
            "any(link.has_failed for link in self.known())",
        ),
    ),
    _mutant(
        "node_tried_again_wakes_nobody",
        "while a node that was lost long ago is tried in vain, metadata is as old as the attempt",
        "tests/network/test_metadata_while_nodes_fail.py",
        Change("network/node_link.py", "        if self.has_failed:\n            self.on_tried_again()\n", ""),
    ),
)
