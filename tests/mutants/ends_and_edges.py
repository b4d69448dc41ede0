"""Bugs where things end: connections, pauses, turns, threads, calls; most survived when they were first tried."""

from tests.mutants.mutant import Change, Mutant

ENDS_AND_EDGES = (
    Mutant(
        name="abandoned_loss_leaves_no_gap",
        breaks="I14: under version 1 a batch that was given up on the wire and lost needs no new epoch",
        tests=("tests/journeys/test_transaction_strays.py",),
        changes=(
            Change(
                "settlement.py",
                "            self._end(batch, is_acknowledged=isinstance(outcome, Complete))\n",
                "            self._end(batch, is_acknowledged=True)\n",
            ),
        ),
    ),
    Mutant(
        name="earlier_throttle_ends_the_later",
        breaks="KIP-219: the end of one pause ends another that is longer",
        families=("D19",),
        changes=(
            Change(
                "network/node_link.py",
                "            self._throttle_timer.cancel()\n        self.is_throttled, self",
                "        self.is_throttled, self",
            ),
        ),
    ),
    Mutant(
        name="questions_ignore_throttle",
        breaks="KIP-219: questions are put to a node that asked for a pause",
        families=("D19",),
        changes=(
            Change(
                "network/node_choice.py",
                "            if link.is_open and not link.is_throttled and (connection",
                "            if link.is_open and (connection",
            ),
        ),
    ),
    Mutant(
        name="end_of_throttle_wakes_nobody",
        breaks="I20: a question waits longer than the pause that it waits for",
        tests=("tests/journeys/test_topics_and_nodes_appear.py",),
        changes=(
            Change(
                "network/node_link.py",
                "        if self.is_open:\n            self._on_change(self)  # questions may wait for it too\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="busy_connection_times_out",
        breaks="I17: a connection that always has something in flight is given up while it answers",
        families=("D2",),
        changes=(
            Change(
                "network/connection.py",
                "        self._oldest_since = self._last_used = now\n        self.answers += 1\n",
                "        self._last_used = now\n        self.answers += 1\n",
            ),
        ),
    ),
    Mutant(
        name="wish_during_a_refresh_is_lost",
        breaks="I10: what is asked for while metadata is on its way is never asked",
        families=("D5",),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "        self._suspected -= suspected\n",
                "        self._suspected -= suspected\n        self._is_full_wanted, self._urgent = False, set()\n",
            ),
        ),
    ),
    Mutant(
        name="attempts_begin_with_the_same_address",
        breaks="I10: of a name's addresses, one that hangs up is tried for ever",
        tests=("tests/network/test_node_links.py",),
        changes=(
            Change(
                "network/node_link.py",
                "        self._attempts += 1\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="called_off_attempt_never_ends",
        breaks="I10: a bootstrap address is never tried again whose attempt was called off before its first step",
        tests=("tests/network/test_node_link.py",),
        changes=(
            Change(
                "network/node_link.py",
                "        return self._task is not None and not self._task.done()\n",
                "        return self._task is not None\n",
            ),
        ),
    ),
    Mutant(
        name="adopted_bootstrap_is_lost",
        breaks="KIP-899: a bootstrap address whose connection became a node's is never asked again",
        tests=("tests/network/test_node_links.py",),
        changes=(
            Change(
                "network/node_links.py",
                "        self._add(link.node)  # a fresh link for the bootstrap address\n",
                "        del self._links[link.node.id]\n",
            ),
        ),
    ),
    Mutant(
        name="leaving_link_is_not_closed",
        breaks="I23: a connection to a node that left stays open behind close",
        tests=("tests/network/test_node_links.py",),
        changes=(
            Change(
                "network/node_links.py",
                "            self._leaving.add(link)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="retiring_connection_takes_requests",
        breaks="a connection that is to be closed once it is drained is never drained",
        tests=("tests/network/test_connection.py",),
        changes=(
            Change(
                "network/connection.py",
                "        if self._is_paused or self._retires_with is not None or self._state",
                "        if self._is_paused or self._state",
            ),
        ),
    ),
    Mutant(
        name="resumed_writing_wakes_nobody",
        breaks="I20: a choked connection is free again, and nobody is told",
        tests=("tests/network/test_connection_acks_0.py",),
        changes=(
            Change(
                "network/connection.py",
                "            self._stream.settle(self._environment.loop.time())\n"
                "            self._environment.wake()\n",
                "            self._stream.settle(self._environment.loop.time())\n",
            ),
        ),
    ),
    Mutant(
        name="moving_stream_counts_as_stalled",
        breaks="a broker that reads slowly counts as one that reads nothing",
        tests=("tests/network/test_connection_acks_0.py",),
        changes=(
            Change(
                "network/outgoing_stream.py",
                "            self._moved_at = max(self._moved_at, now)  # kernels take some during a pause\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="topic_in_use_is_forgotten",
        breaks="a topic is forgotten five minutes after its first use",
        tests=("tests/network/test_metadata_refresher.py",),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "            self._is_new_topic.set()\n        self._topics[topic] = now\n",
                "            self._is_new_topic.set()\n            self._topics[topic] = now\n",
            ),
        ),
    ),
    Mutant(
        name="metadata_pause_never_shrinks",
        breaks="I10: after trouble metadata is asked for once a second for ever",
        tests=("tests/network/test_metadata_pauses.py",),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "        self._attempts = 0 if has_news and is_all_there else self._attempts + 1\n",
                "        self._attempts += 0 if has_news and is_all_there else 1\n",
            ),
        ),
    ),
    Mutant(
        name="cancelled_waiter_wakes_nobody",
        breaks="I20: who gives up waiting for memory leaves those behind waiting",
        tests=("tests/journeys/test_memory_runs_out.py",),
        changes=(
            Change(
                "admission.py",
                "            self._running.wake()  # whoever stood behind it may fit where it did not\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="withdrawn_record_tells_nobody",
        breaks="I2: on_delivery of a record whose caller gave up is never called",
        families=("D8",),
        changes=(
            Change(
                "admission.py",
                "                self._running.completion.withdraw(record.result, error)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="third_batch_is_never_compressed",
        breaks="I10: a large batch that waits for a thread waits for ever",
        tests=("tests/journeys/test_compression.py",),
        changes=(
            Change(
                "sealing.py",
                "        self._finish(batch, None if job.cancelled() or error is not None else job.result())\n"
                "        self._start()\n",
                "        self._finish(batch, None if job.cancelled() or error is not None else job.result())\n",
            ),
        ),
    ),
    Mutant(
        name="turn_lost_when_given_up",
        breaks="I17: a turn that comes as its task gives up is lost, and all wait",
        tests=("tests/journeys/test_transaction_turns.py",),
        changes=(
            Change(
                "transactions/turns.py",
                "        self.give(turn)\n        self._waiting = deque(",
                "        self._waiting = deque(",
            ),
        ),
    ),
    Mutant(
        name="abandonment_sticks",
        breaks="I17: after one transaction that was left alone, every one is",
        families=("D10",),
        changes=(
            Change(
                "transactions/endings.py",
                "        self._ending = None\n        self._is_abandoned = False\n",
                "        self._ending = None\n",
            ),
        ),
    ),
    Mutant(
        name="unstable_offsets_are_told",
        breaks="C8: offsets are told that an open transaction may change (KIP-447)",
        tests=("tests/journeys/test_transaction_left_alone.py",),
        changes=(
            Change(
                "transactions/committed_offsets.py",
                "require_stable=True",
                "require_stable=False",
            ),
        ),
    ),
    Mutant(
        name="open_calls_outlive_close",
        breaks="I17: who asks for offsets waits on when the producer is closed",
        tests=("tests/journeys/test_transaction_left_alone.py",),
        changes=(
            Change(
                "running_producer.py",
                "        self.stop_taking()\n        self.calls.end()\n",
                "        self.stop_taking()\n",
            ),
        ),
    ),
    Mutant(
        name="latency_counts_batches",
        breaks="statistics: latencies are those of batches",
        tests=("tests/test_metrics.py",),
        changes=(
            Change(
                "completion.py",
                "        self._latency.record(now - batch.called_at, batch.count)\n",
                "        self._latency.record(now - batch.called_at)\n",
            ),
        ),
    ),
    Mutant(
        name="waiting_failures_are_not_pending",
        breaks="statistics: who found no room counts as one that was pending",
        tests=("tests/test_metrics.py",),
        changes=(
            Change(
                "snapshot.py",
                "accepted - counts.records_acknowledged - counts.batch_records_failed",
                "accepted - counts.records_acknowledged - counts.records_failed",
            ),
        ),
    ),
)
