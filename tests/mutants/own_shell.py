"""Bugs of what does: connections, metadata, the sender's turns, close."""

from tests.mutants.mutant import Change, Mutant

OWN_SHELL = (
    Mutant(
        name="one_request_too_many_in_flight",
        breaks="I7: a connection carries one request more than configured",
        families=("D1", "D2"),
        changes=(
            Change(
                "network/connection.py",
                "        return self.in_flight < self._max_in_flight",
                "        return self.in_flight <= self._max_in_flight",
            ),
        ),
    ),
    Mutant(
        name="unreadable_answer_ends_nothing",
        breaks="I1, I10: a request whose answer cannot be read is neither answered nor lost",
        families=("D20",),
        changes=(Change("network/connection.py", "            self._spoiled.append(request)\n", ""),),
    ),
    Mutant(
        name="request_never_times_out",
        breaks="I10, I2: a broker that is silent keeps what it was sent",
        families=("D9", "D2"),
        changes=(
            Change(
                "network/connection.py",
                "too_late = self._oldest_since + self._request_timeout_s\n",
                "too_late = self._last_used + 60 * self._request_timeout_s\n",
            ),
        ),
    ),
    Mutant(
        name="size_cut_in_two_is_dropped",
        breaks="I10: the first bytes of an answer that come alone are forgotten",
        families=("D1", "D2"),
        changes=(
            Change(
                "protocol/conversation.py",
                "        self._start = bytes(view[position:])\n",
                '        self._start = b""\n',
            ),
        ),
    ),
    Mutant(
        name="closed_link_connects_again",
        breaks="I23: a connection is made after close",
        families=("D16",),
        changes=(
            Change(
                "network/node_link.py",
                "        task = self._task\n        self._cancel_attempt()\n        if self._throttle_timer",
                "        task = None\n        if self._throttle_timer",
            ),
        ),
    ),
    Mutant(
        name="event_quotes_the_batch",
        breaks="I25: a record is in the log of the application",
        families=("D9", "D8"),
        changes=(
            Change(
                "completion.py",
                "            attempts=batch.attempts_before + batch.attempts,\n            outcome=error",
                "            attempts=bytes(batch.records()[:60]),\n            outcome=error",
            ),
        ),
    ),
    Mutant(
        name="error_quotes_the_record",
        breaks="I25: a record is in the text of an error",
        families=("D8", "D9"),
        changes=(
            Change(
                "core/waiting_lines.py",
                '                f"no room for a record of {record.size} bytes within',
                '                f"no room for {record.value!r}, {record.size} bytes, within',
            ),
        ),
    ),
    Mutant(
        name="oversized_answer_is_awaited",
        breaks="I28: an answer of any announced size is collected",
        families=("D20",),
        changes=(
            Change(
                "protocol/conversation.py",
                "        if size > largest:\n",
                "        if size > largest * 256:\n",
            ),
        ),
    ),
    Mutant(
        name="bad_answer_closes_all_connections",
        breaks="I28: what one broker leaves out ends the connections to the others",
        families=("D20",),
        changes=(
            Change(
                "sender.py",
                "                self._client.disconnect(request.node_id, batch.last_error)\n",
                "                for node_id in self._metadata.cluster.nodes:\n"
                "                    self._client.disconnect(node_id, batch.last_error)\n",
            ),
        ),
    ),
    Mutant(
        name="failed_connection_is_tried_at_once",
        breaks="I22: no pause between two attempts to connect",
        families=("D9", "D6"),
        changes=(
            Change(
                "network/node_link.py",
                "        self.retry_at = self._environment.loop.time() + delay_s\n",
                "        self.retry_at = self._environment.loop.time()\n",
            ),
        ),
    ),
    Mutant(
        name="old_hint_wins",
        breaks="I24: a leader named by an answer replaces a newer one",
        families=("D5", "D2"),
        changes=(
            Change(
                "core/cluster.py",
                "            if leader.leader_epoch <= view.partitions[partition].leader_epoch:\n"
                "                continue\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="leaderless_partition_asks_nobody",
        breaks="I10: a partition without a leader waits for somebody else to ask",
        families=("D14", "D5"),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "        return True\n    return view.partitions.lacks_leader\n",
                "        return False\n    return False\n",
            ),
            Change(
                "sender.py",
                '            self._metadata.request_update("no_leader")\n',
                "",
            ),
        ),
    ),
    Mutant(
        name="metadata_asked_twice_at_once",
        breaks="I22: an answer that names no usable topic is asked for again without a pause",
        families=("D14", "D2"),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "                self._note_failure(error)\n            await self._pause()\n",
                "                self._note_failure(error)\n",
            ),
        ),
    ),
    Mutant(
        name="close_forgets_what_is_on_the_wire",
        breaks="I2: what was sent and not answered when the producer is closed never ends",
        families=("D16",),
        changes=(
            Change(
                "core/record_accumulator.py",
                "[*queue.on_wire, *queue.queued]",
                "[*queue.queued]",
            ),
        ),
    ),
    Mutant(
        name="close_waits_as_long_as_it_takes",
        breaks="I17: close(timeout) drains without a bound",
        families=("D16",),
        changes=(
            Change(
                "flush_waiters.py",
                "        self._drain_by = min(self._drain_by, self._loop.time() + timeout_s)\n",
                "        self._drain_by = min(self._drain_by, self._loop.time() + 2 * timeout_s)\n",
            ),
        ),
    ),
    Mutant(
        name="producer_id_asked_once",
        breaks="I10: when the first broker has no producer id to give, nothing is ever sent",
        families=("D2", "D14"),
        changes=(
            Change(
                "producer_id_source.py",
                "            while self._identity.is_missing and not await self._fetch():\n",
                "            if self._identity.is_missing and not await self._fetch():\n",
            ),
            Change(
                "sender.py",
                "        if self._identity.is_missing:\n            self._ask_producer_id()\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="closing_connection_is_waited_for",
        breaks="I10: whoever asks the only broker while its connection closes waits for ever",
        families=(),
        changes=(
            Change(
                "network/node_choice.py",
                "            if tried.get(link) == link.failures:\n                link.connect()",
                "            if tried.get(link) == -1:\n                link.connect()",
            ),
        ),
        tests=("tests/network/test_question.py",),
    ),
)
