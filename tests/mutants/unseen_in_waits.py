"""Bugs in when something is done, asked again or given up, which nobody saw at first; now tests do."""

from tests.mutants.mutant import Change, Mutant

COMMITTED_OFFSETS = "tests/journeys/test_committed_offsets_in_trouble.py"


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


UNSEEN_IN_WAITS = (
    _mutant(
        "soon_for_ever",
        "I22: markers that never come are asked for fifty times a second",
        "tests/test_settlement.py",
        Change("settlement.py", "outcome.is_soon and batch.attempts <= SOON_AT_MOST", "outcome.is_soon"),
    ),
    _mutant(
        "written_frees_silently",
        "I20: acks=0: what waits for its node is not sent once there is room",
        "tests/test_sender_wakes.py",
        Change(
            "sender.py",
            (
                "            self._settlement.apply(batch, Complete(-1), now)\n"
                "        self._wake_if_held_back(request.node_id)\n"
            ),
            "            self._settlement.apply(batch, Complete(-1), now)\n",
        ),
    ),
    _mutant(
        "hinted_node_is_unknown",
        "I10: a leader that an answer names first is not connected to before the next metadata",
        "tests/network/test_metadata_refresher.py",
        Change(
            "network/metadata_refresher.py",
            "        if cluster is not self.cluster:\n            self._publish(cluster)\n",
            (
                "        if cluster is not self.cluster:\n"
                "            self.cluster = cluster\n"
                "            for listener in self._listeners:\n"
                "                listener(cluster)\n"
            ),
        ),
    ),
    _mutant(
        "sending_is_no_use",
        "acks=0: a connection is closed as idle while it is written to",
        "tests/network/test_connection_acks_0.py",
        Change("network/connection.py", "request.sent_at = self._last_used = now\n", "request.sent_at = now\n"),
    ),
    _mutant(
        "unwritten_is_idle",
        "acks=0: a connection is closed as idle while a slow network takes its bytes",
        "tests/network/test_connection_acks_0.py",
        Change(
            "network/connection.py",
            (
                "        elif self._stream.unwritten:  # the stream itself closes what does not move\n"
                "            self._watch(now + self._look_again_s)\n"
            ),
            "",
        ),
    ),
    _mutant(
        "too_old_may_grow_younger",
        "brokers that are too old are asked again and again until `max_block_ms` is over",
        "tests/journeys/test_broker_too_old.py",
        Change(
            "network/node_link.py",
            "isinstance(self.last_error, AuthenticationError | UnsupportedVersionError)",
            "isinstance(self.last_error, AuthenticationError)",
        ),
    ),
    _mutant(
        "nobody_looks_for_the_other_end",
        "a connection that a firewall has forgotten is noticed by the record that is lost in it",
        "tests/network/test_sockets.py",
        Change("network/outgoing_stream.py", "    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)\n", ""),
    ),
    _mutant(
        "raised_failure_ends_transaction",
        "a record that was never taken, as its call has said, costs the transaction",
        "tests/journeys/test_transaction_calls_given_up.py",
        Change(
            "completion.py",
            "        if fails_transaction:\n            self.on_failure(error)\n",
            "        self.on_failure(error)\n",
        ),
    ),
    _mutant(
        "close_leaves_a_renewal",
        "I23: a producer that closes leaves its transaction open where a new identity is what ends it",
        "tests/journeys/test_transactions.py",
        Change(
            "transactions/endings.py",
            '        await self._waits.until(lambda: self._manager.has_ended, None, "")\n',
            "",
        ),
    ),
    _mutant(
        "pauses_of_what_was_refused",
        "I22: the abort after a request that was refused late begins with the longest pause",
        "tests/core/test_transaction_manager.py",
        Change(
            "core/transaction_manager.py",
            "        self.pacing.passed()\n        if is_refused_unseen",
            "        if is_refused_unseen",
        ),
    ),
    _mutant(
        "outdated_is_renewed",
        "a producer that was fenced asks for an identity, and fences the one that took over",
        "tests/journeys/test_transaction_ends.py",
        Change(
            "core/transaction_failures.py",
            "if not (transaction.is_commit_sent or transaction.is_outdated):",
            "if not transaction.is_commit_sent:",
        ),
    ),
    _mutant(
        "offsets_asked_for_at_one_pace",
        "I22: a group whose transaction stays open is asked about ten times a second",
        COMMITTED_OFFSETS,
        Change("transactions/committed_offsets.py", "            attempts.count += 1\n", ""),
    ),
    _mutant(
        "coordinator_is_never_named",
        "a coordinator of a group that came after the last metadata is not found for minutes",
        COMMITTED_OFFSETS,
        Change(
            "transactions/committed_offsets.py",
            '                self._metadata.request_update("coordinator_unreachable")\n',
            "",
        ),
    ),
    _mutant(
        "offsets_throttle_ignored",
        "KIP-219: a broker that asks for a pause with its answer on offsets gets none",
        COMMITTED_OFFSETS,
        Change(
            "network/node_link.py",
            "            self._throttle(response.throttle_time_ms, now)\n",
            "            del now\n",
        ),
    ),
    _mutant(
        "offsets_of_a_version_that_is_gone",
        "a broker that was exchanged for an older one is asked for offsets in vain",
        COMMITTED_OFFSETS,
        Change(
            "network/node_link.py",
            "            self.connection.retire(BrokerConnectionError(text))\n",
            "            del text\n",
        ),
    ),
    _mutant(
        "left_out_is_nothing_committed",
        "a partition that an answer leaves out is read again from its beginning",
        COMMITTED_OFFSETS,
        Change(
            "transactions/committed_offsets.py",
            "{partition: committed[partition] for partition in partitions}",
            "{partition: committed.get(partition) for partition in partitions}",
        ),
    ),
)
