"""Bugs of transactions: commits, epochs, partitions added, offsets, coordinators."""

from tests.mutants.mutant import Change, Mutant

_MANAGER = "core/transaction_manager.py"
_OPEN = "core/open_transaction.py"
_OUTCOME = "core/transaction_outcome.py"
_LAST_OF_ANY = "    _E.PRODUCER_FENCED: Verdict.{},\n}}\n\n_IN_TRANSACTION"


def _mutant(name: str, breaks: str, families: tuple[str, ...], *, old: str, new: str, file: str = _MANAGER) -> Mutant:
    return Mutant(name=name, breaks=breaks, families=families, changes=(Change(file, old, new),))


def _by_test(name: str, breaks: str, test: str, *, old: str, new: str, file: str = _MANAGER) -> Mutant:
    """Where the simulation does not make what it takes, or too seldom: a cluster that is downgraded, late offsets."""
    return Mutant(name=name, breaks=breaks, tests=(test,), changes=(Change(file, old, new),))


OWN_TRANSACTIONS = (
    _mutant(
        "commit_ignores_a_failed_record",
        "I12: a transaction is committed without it",
        ("D10", "D13"),
        old="        if self.state in _OPEN:\n            self._open.is_outdated = ",
        new="        if not self.state:\n            self._open.is_outdated = ",
    ),
    _mutant(
        "fenced_is_retriable",
        "I17: who was fenced asks for ever",
        ("D12",),
        file=_OUTCOME,
        old=_LAST_OF_ANY.format("FATAL"),
        new=_LAST_OF_ANY.format("RETRY"),
    ),
    _mutant(
        "version_2_keeps_its_epoch",
        "CALM: the transaction after the first is refused",
        ("D10",),
        old="        if answer is not None and self.is_v2 and answer.producer_id >= 0:\n",
        new="        if answer is not None and not self.is_v2 and answer.producer_id >= 0:\n",
    ),
    _mutant(
        "end_before_partitions_are_added",
        "I17: what was to be added when the commit began never is",
        ("D10", "D13"),
        old="        if self.state in _OPEN and self._joining:\n",
        new="        if self.state is TransactionState.IN_TRANSACTION and self._joining:\n",
    ),
    _mutant(
        "end_before_records_are_answered",
        "I13: EndTxn overtakes what is on the wire",
        ("D10", "D13"),
        old="        if self.state in _ENDING and self._open.is_flushed and not self._is_renewing:\n",
        new="        if self.state in _ENDING and not self._is_renewing:\n",
    ),
    _mutant(
        "abort_under_version_1_waits_for_nothing",
        "I13: EndTxn overtakes what is on the wire, and what arrives after it is committed with the next transaction",
        ("D10", "D13"),
        file="transactions/endings.py",
        old="        if self._manager.is_v2 or self._records.is_off_the_wire():\n",
        new="        if self._manager.number:\n",
    ),
    _mutant(
        "unknown_code_ends_a_transaction_well",
        "I21: what a newer coordinator refuses counts as done",
        ("D10",),
        file=_OUTCOME,
        old="    return Verdict.ABORTABLE if api_key in _ENDS_WITH_THE_TRANSACTION else Verdict.FATAL\n",
        new="    return Verdict.DONE\n",
    ),
    _mutant(
        "abort_is_a_commit",
        "I12: what was given up is there",
        ("D10",),
        old="requests, is_commit = self._requests, self.state is TransactionState.COMMITTING\n",
        new="requests, is_commit = self._requests, self.state in _ENDING\n",
    ),
    Mutant(
        name="no_epoch_after_a_gap",
        breaks="I14: a batch of one transaction ends in the next, or every next one gets 45, on version 1",
        families=("D13", "D10"),
        changes=(
            Change(
                _MANAGER,
                "        needs_epoch = self._identity.needs_epoch or self._open.has_stray or self._is_renewing\n",
                "        needs_epoch = self._open.has_stray or self._is_renewing\n",
            ),
            Change(
                _MANAGER,
                "        if self._identity.needs_epoch or (is_v2 and was_v1):\n",
                "        if is_v2 and was_v1:\n",
            ),
        ),
    ),
    _mutant(
        "produces_before_the_partition_is_added",
        "I13: on version 1",
        ("D10",),
        old="        if self.is_v2 and self._marker_pause.is_over(now):\n",
        new="        if self.number and self._marker_pause.is_over(now):\n",
    ),
    _mutant(
        "offsets_added_are_offsets_committed",
        "C8: they are missing",
        ("D11",),
        file="core/offsets_in_line.py",
        old="        if request.api is ADD_OFFSETS_TO_TXN:\n            offsets.is_added = True\n",
        new="        if request.api is ADD_OFFSETS_TO_TXN:\n            offsets.is_added = offsets.is_done = True\n",
    ),
    _mutant(
        "transaction_is_left_open",
        "I12, I14: an abort of which the coordinator knows is not asked for",
        ("D10",),
        old="        if self._is_renewing or not (may_be_known or self._joining or self._offsets):\n",
        new="        if self._is_renewing or not (self._joining or self._offsets):\n",
    ),
    _mutant(
        "coordinator_cached_for_ever",
        "I17: who is not the coordinator any more is asked for ever",
        ("D11", "D10"),
        old="            if verdict is Verdict.REFIND:\n                self._nodes.pop(request.coordinator, None)\n",
        new="            if verdict is Verdict.DONE:\n                self._nodes.pop(request.coordinator, None)\n",
    ),
    _mutant(
        "concurrent_transactions_is_done",
        "I12: an EndTxn that has to wait is taken for one that was done",
        ("D11", "D10"),
        file=_OUTCOME,
        old="    _E.CONCURRENT_TRANSACTIONS: Verdict.RETRY_SOON,\n    _E.UNKNOWN_SERVER_ERROR: Verdict.RETRY,\n"
        "    _E.UNSUPPORTED_VERSION",
        new="    _E.CONCURRENT_TRANSACTIONS: Verdict.DONE,\n    _E.UNKNOWN_SERVER_ERROR: Verdict.RETRY,\n"
        "    _E.UNSUPPORTED_VERSION",
    ),
    _by_test(
        "commit_that_is_late_is_the_producers_end",
        "a worker whose transaction timed out is told that it was replaced, by Kafka after 4.4",
        "tests/core/test_transaction_ends.py",
        file=_OUTCOME,
        old="(identity.producer_id, identity.producer_epoch + 1)",
        new="(identity.producer_id, identity.producer_epoch)",
    ),
    _by_test(
        "unknown_id_is_asked_for_an_identity",
        "a fenced producer whose id has expired gets a new identity, and commits what its successor has committed",
        "tests/core/test_transaction_forgotten.py",
        file=_OUTCOME,
        old="    _E.TRANSACTIONAL_ID_NOT_FOUND: Verdict.FATAL,",
        new="    _E.TRANSACTIONAL_ID_NOT_FOUND: Verdict.DONE,",
    ),
    _by_test(
        "another_producer_id_is_taken_for_the_next_epoch",
        "the same, when the id expires before InitProducerId or cannot be described",
        "tests/core/test_transaction_forgotten.py",
        file="core/transaction_requests.py",
        old="    return answer.producer_id != asked.producer_id and",
        new="    return answer.producer_id == asked.producer_epoch and",
    ),
    _by_test(
        "record_of_an_expired_id_fails_alone",
        "a producer that brokers do not know is told so once per transaction, not for good",
        "tests/core/test_transaction_forgotten.py",
        file="core/produce_outcome.py",
        old="        row is ErrorCode.INVALID_PRODUCER_ID_MAPPING and policy.is_transactional\n",
        new="        row is ErrorCode.INVALID_PRODUCER_ID_MAPPING and not policy.is_idempotent\n",
    ),
    _by_test(
        "lost_commit_is_excluded_by_a_refusal",
        "who was replaced after its commit is told that nothing of it is there, and sends it again",
        "tests/journeys/test_transaction_ends.py",
        file=_OPEN,
        old="        self.commits_in_doubt -= _is_commit(request)\n",
        new="        self.commits_in_doubt *= not _is_commit(request)\n",
    ),
    _by_test(
        "late_copy_fences_its_own_producer",
        "who renews its identity is fenced by what a late copy of its own request has begun",
        "tests/core/test_transaction_successor.py",
        old="        if self._open.is_open_again:\n",
        new="        if self._open.is_open_again and self.is_v2:\n",
    ),
    _by_test(
        "downgrade_is_not_followed",
        "a version 2 transaction of a cluster that serves version 1 alone never ends",
        "tests/journeys/test_transaction_version_changes.py",
        file="transactions/coordinators.py",
        old="        if self.manager.is_v2 and self._client.transaction_version < FIRST_V2:\n",
        new="        if self.manager.is_v2 and self._client.transaction_version < 0:\n",
    ),
    _by_test(
        "downgraded_transaction_keeps_its_epoch",
        "what is late of it ends in the next one",
        "tests/core/test_transaction_downgrade.py",
        file=_OPEN,
        old="        self.is_known, self.has_stray = False, True\n",
        new="        self.is_known, self.has_stray = False, False\n",
    ),
    _by_test(
        "late_offsets_delay_nothing",
        "Kafka 3.9 forgets the offsets of the next transaction",
        "tests/core/test_late_copies.py",
        file="core/late_copies.py",
        old="(request.api is TXN_OFFSET_COMMIT and not is_v2)",
        new="(request.api is TXN_OFFSET_COMMIT and is_v2)",
    ),
    _by_test(
        "late_offsets_delay_wherever",
        "a pipeline stands still for half a minute when a coordinator dies",
        "tests/core/test_late_copies.py",
        file="core/late_copies.py",
        old="            if node_id in before:\n"
        "                self._given_up[request.coordinator] = {node_id: before[node_id]}\n",
        new="            self._given_up[request.coordinator] = before\n",
    ),
    _mutant(
        "stray_needs_no_epoch",
        "I14: an EndTxn that arrives late ends the next transaction, on version 1",
        ("D13",),
        old="        needs_epoch = self._identity.needs_epoch or self._open.has_stray or self._is_renewing\n",
        new="        needs_epoch = self._identity.needs_epoch or self._is_renewing\n",
    ),
    _mutant(
        "identity_is_had_again_by_force",
        "C9: who was fenced asks for an epoch as if it were new, and fences its successor",
        ("D12",),
        file="core/signed_requests.py",
        old="        identity = None if self._identity.producer_id is None else self.identity\n",
        new="        identity = None\n",
    ),
    _mutant(
        "stray_of_the_new_epoch_is_not_waited_for",
        "FENCED: an InitProducerId that arrives late takes the identity away from who has asked for it",
        ("D13",),
        file="core/late_copies.py",
        old="        return max(given_up) + self._lifetime_s if given_up else 0.0\n",
        new="        return max(given_up) if given_up else 0.0\n",
    ),
    _mutant(
        "repeated_commit_starts_anew",
        "I18: who asks again for the commit that is under way does not join it",
        ("D10",),
        file="transactions/endings.py",
        old="ending is None or not ending.is_commit or not ending.may_be_joined:\n",
        new="ending is None or not ending.is_commit or not ending.is_told:\n",
    ),
    _mutant(
        "failure_after_a_failure_is_not_told",
        "I17: those who wait for their turn are not told that the producer was fenced",
        ("D12",),
        file="transactions/runner.py",
        old="        if error is not None and error is not self._told:",
        new="        if error is not None and self._told is None:",
    ),
    _by_test(
        "early_batches_do_not_wait_for_answers",
        "a large transaction goes in as many requests as it has quarters of a batch, however busy the broker is",
        "tests/test_early_requests.py::test_nothing_goes_early_while_a_request_is_on_its_way",
        file="transactions/early_requests.py",
        old="            if self._is_idle():\n                self._go()\n",
        new="            self._go()\n",
    ),
    _by_test(
        "few_bytes_of_many_partitions_go_early",
        "a transaction over many partitions is sent in batches of a few records",
        "tests/test_early_requests.py::test_batches_go_together_when_each_is_worth_it",
        file="transactions/early_requests.py",
        old="        enough = self._step * self._open_batches.count\n",
        new="        enough = self._step\n",
    ),
    _by_test(
        "who_is_told_of_bytes_is_told_again",
        "after the first step of a large transaction Python is called for every record",
        "tests/native/test_append_tells.py::test_writing_so_many_bytes_calls_back_once",
        file="_native/append.pyx",
        old="callback, self._on_written, self._bytes_left = self._on_written, None, NEVER",
        new="callback, self._bytes_left = self._on_written, 0",
    ),
)
