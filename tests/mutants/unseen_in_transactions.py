"""Bugs of transactions that the simulation did not find when they were first tried."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, families: tuple[str, ...], *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, families=families, changes=changes)


UNSEEN_IN_TRANSACTIONS = (
    _mutant(
        "offsets_left_when_committing",
        "C8: offsets that nobody waited for are not committed with their transaction",
        ("D11",),
        Change(
            "core/transaction_manager.py",
            "        if self.state in _OPEN and self._offsets:\n            return self._requests",
            "        if self.state is TransactionState.IN_TRANSACTION and self._offsets:\n"
            "            return self._requests",
        ),
    ),
    _mutant(
        "first_partition_speaks_for_all",
        "C8: the partitions behind the first of an answer are taken for done",
        ("D11",),
        Change(
            "core/transaction_requests.py",
            "    return [found.get(place, -1) for place in _places(request)]\n",
            "    return [found.get(place, -1) for place in _places(request)][:1]\n",
        ),
    ),
    _mutant(
        "mildest_code_counts",
        "C8: an answer that is good for one partition counts as good for all",
        ("D11",),
        Change(
            "core/transaction_outcome.py",
            "    code = max(reasons or codes, key=",
            "    code = min(codes, key=",
        ),
    ),
    Mutant(
        name="unwanted_commit_goes_out",
        breaks="I12: a commit that waited to be sent is sent though an abort was granted meanwhile",
        families=(),
        changes=(
            Change(
                "transactions/coordinators.py",
                "if self.manager.state not in {asked_in, TransactionState.COMMITTING}:",
                "if self.manager.state not in {asked_in, *TransactionState}:",
            ),
        ),
        tests=("tests/journeys/test_transaction_resumed.py",),
    ),
    _mutant(
        "transactional_requests_without_a_pause",
        "I22: coordinators are asked again without a pause",
        ("D11", "D10"),
        Change(
            "core/request_pacing.py",
            "        self.next_at = now + backoff.delay_s(self._attempts)\n",
            "        self.next_at = now\n",
        ),
    ),
    _mutant(
        "coordinators_asked_at_one_pace",
        "I22: coordinators are asked again and again after the first pause",
        ("D11", "D10"),
        Change(
            "core/request_pacing.py",
            "delay_s(self._attempts)\n",
            "delay_s(0)\n",
        ),
    ),
    _mutant(
        "pauses_of_coordinators_never_reset",
        "I22: a request pays for those that were refused before it",
        ("D11", "D10"),
        Change(
            "core/request_pacing.py",
            '        self._attempts = 0\n        self.trouble = ""\n',
            '        self.trouble = ""\n',
        ),
    ),
    _mutant(
        "every_coordinator_is_asked_soon",
        "I22: who is loading is asked as if it were busy for a moment",
        ("D11", "D10"),
        Change(
            "core/request_pacing.py",
            "        backoff = self._soon if is_soon and self._attempts < SOON_AT_MOST else self._backoff\n",
            "        backoff = self._soon\n",
        ),
    ),
    _mutant(
        "marker_pause_of_half_a_minute",
        "I20: the first records of a transaction wait for half a minute",
        ("D10",),
        Change(
            "core/marker_pause.py",
            "        self.until = now + self.seconds\n",
            "        self.until = now + self.seconds + 30\n",
        ),
    ),
    _mutant(
        "marker_pause_is_never_over",
        "I20, I22: each partition of a transaction waits for markers that were written long ago",
        ("D13", "D10"),
        Change(
            "core/marker_pause.py",
            "        return self.until - now <= self._grain_s / 2\n",
            "        return self.until == 0\n",
        ),
    ),
    _mutant(
        "upgrade_without_epoch",
        "I14: a transaction of version 2 can be reached by what is late of one of version 1",
        ("D13",),
        Change(
            "core/transaction_manager.py",
            "        if self._identity.needs_epoch or (is_v2 and was_v1):\n",
            "        if self._identity.needs_epoch:\n",
        ),
    ),
    _mutant(
        "fresh_partition_of_version_1_pipelines",
        "I7: on version 1, the second batch of a partition may overtake the first",
        ("D13", "D10"),
        Change(
            "core/transaction_identity.py",
            "        self._is_fresh = self._shared.pipelines_at_once\n",
            "        self._is_fresh = True\n",
        ),
    ),
    _mutant(
        "offsets_survive_abort",
        "I20, C8: the offsets of a transaction that was aborted are sent in the next one",
        ("D13", "D11"),
        Change(
            "core/transaction_manager.py",
            "        self._joining.clear()\n        self._offsets.clear()\n",
            "        self._joining.clear()\n",
        ),
    ),
    _mutant(
        "partition_added_with_each_batch",
        "I13, I22: a partition is added with each of its batches",
        ("D10",),
        Change(
            "core/transaction_manager.py",
            "        if self.state not in _OPEN or queue.identity.is_send_allowed or queue in self._joining:\n",
            "        if self.state not in _OPEN:\n",
        ),
    ),
    Mutant(
        name="group_looked_up_as_transaction",
        breaks="EXCUSE: the coordinator of a group is looked for among those of transactions",
        families=(),  # D11 finds it, too, but rarely: most groups have the coordinator that transactions have
        tests=("tests/core/test_transaction_coordinators.py",),
        changes=(
            Change(
                "core/transaction_requests.py",
                "Coordinator(CoordinatorType.GROUP, self.group.group_id)",
                "Coordinator(CoordinatorType.TRANSACTION, self.group.group_id)",
            ),
        ),
    ),
    _mutant(
        "generation_not_told",
        "C8: a consumer that has lost its partitions commits for them (KIP-447)",
        ("D11",),
        Change(
            "protocol/offset_messages.py",
            "_INT32.pack(member.generation_id)",
            "_INT32.pack(-1)",
        ),
    ),
    _mutant(
        "member_not_told",
        "C8: the group's coordinator does not hear which member commits (KIP-447)",
        ("D11",),
        Change(
            "protocol/offset_messages.py",
            "string(member.member_id, flexible=True)",
            'string("", flexible=True)',
        ),
    ),
    _mutant(
        "abort_after_commit_sent",
        "I12: an abort is granted after EndTxn has gone out to commit",
        ("D13", "D10"),
        Change(
            "core/open_transaction.py",
            "            self.is_commit_sent = True\n",
            "            self.is_commit_sent = False\n",
        ),
    ),
    _mutant(
        "gap_is_never_closed",
        "EPOCH: after one record that failed, every transaction asks for an epoch",
        ("D13", "D10"),
        Change(
            "core/transaction_identity.py",
            "        self.number += 1\n        self.needs_epoch = False\n",
            "        self.number += 1\n",
        ),
    ),
    _mutant(
        "stray_is_never_over",
        "EPOCH: after one request that was lost, every transaction asks for an epoch",
        ("D13", "D10"),
        Change(
            "core/transaction_manager.py",
            "        self._open = OpenTransaction()\n        return True\n",
            "        self._open = OpenTransaction(has_stray=self._open.has_stray)\n        return True\n",
        ),
        Change(
            "core/transaction_manager.py",
            "        self._is_renewing = self._is_doubted = self._open.has_stray = False\n",
            "        self._is_renewing = self._is_doubted = False\n",
        ),
    ),
    Mutant(
        name="offsets_not_added_under_version_1",
        breaks="EXCUSE: on version 1, offsets of a group that the transaction does not have",
        tests=("tests/journeys/test_transactions.py",),
        changes=(
            Change(
                "core/signed_requests.py",
                "        if is_v2 or offsets.is_added:\n",
                "        if is_v2 or offsets is not None:\n",
            ),
        ),
    ),
    _mutant(
        "offsets_of_version_2_under_version_1",
        "I14: a transaction of version 1 commits offsets as in version 2",
        ("D11",),
        Change(
            "core/transaction_requests.py",
            "        at_most=None if is_v2 else TXN_OFFSET_COMMIT_V1,\n",
            "",
        ),
    ),
    _mutant(
        "close_aborts_nothing",
        "LSO: a closed producer leaves its transaction open",
        ("D10",),
        Change(
            "transactions/endings.py",
            "        while self.refusals.is_open:\n            if self._manager.may_abort",
            "        while self.refusals.is_open and self._manager.state is not _STATE.IN_TRANSACTION:\n"
            "            if self._manager.may_abort",
        ),
    ),
    _mutant(
        "long_pause_has_no_alarm",
        "I20: a request that has to wait longer is forgotten",
        ("D11", "D10"),
        Change(
            "transactions/runner.py",
            "        if (next_at := self._manager.next_at(looked_at)) > looked_at:\n",
            "        if (next_at := self._manager.next_at(looked_at)) > looked_at + 0.05:\n",
        ),
    ),
    _mutant(
        "text_of_offsets_lost",
        "C8: the text beside an offset is lost",
        ("D11",),
        Change(
            "protocol/offset_messages.py",
            "string(offset.metadata, flexible=flexible)",
            'string("", flexible=flexible)',
        ),
    ),
)
