"""Bugs that break a promise of transactions."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

TRANSACTIONS: Final = (
    Mutant(
        name="commit_ignores_a_failed_record",
        breaks="a transaction is committed without it",
        families=("D10", "D13"),
        changes=(
            Change(
                "_transactions/manager.py",
                "TransactionManager._fail_transaction",
                "self.state in _MAY_STILL_COMMIT",
                "not self.state",
            ),
        ),
    ),
    Mutant(
        name="end_before_records_are_answered",
        breaks="EndTxn overtakes what is on the wire",
        families=("D10", "D13"),
        changes=(
            Change(
                "_transactions/manager.py",
                "TransactionManager._wanted",
                "self.state in _ENDING and self._open.is_flushed and (not self._is_renewing)",
                "self.state in _ENDING and (not self._is_renewing)",
            ),
        ),
    ),
    Mutant(
        name="abort_under_version_1_waits_for_nothing",
        breaks="EndTxn overtakes what is on the wire, and what arrives after it is committed with the next transaction",
        families=("D10", "D13"),
        changes=(
            Change(
                "_transactions/commit_abort.py",
                "TransactionCompleter._begin_abort",
                "self._manager.is_v2 or self._records.is_off_the_wire()",
                "self._manager.number",
            ),
        ),
    ),
    Mutant(
        name="no_epoch_after_a_gap",
        breaks="a batch of one transaction ends in the next, or every next one gets 45, on version 1",
        families=("D13", "D10"),
        changes=(
            Change(
                "_transactions/manager.py",
                "TransactionManager._end",
                "self._identity.needs_epoch or self._open.has_stray or self._is_renewing",
                "self._open.has_stray or self._is_renewing",
            ),
            Change(
                "_transactions/manager.py",
                "TransactionManager.begin",
                "self._identity.needs_epoch or (is_v2 and was_v1)",
                "is_v2 and was_v1",
            ),
        ),
    ),
    Mutant(
        name="offsets_added_are_offsets_committed",
        breaks="they are missing",
        families=("D11",),
        changes=(
            Change(
                "_transactions/open_transaction.py",
                "PendingOffsets.forward",
                "offsets.is_added = True",
                "offsets.is_added = offsets.is_done = True",
            ),
        ),
    ),
    Mutant(
        name="transaction_is_left_open",
        breaks="an abort of which the coordinator knows is not asked for",
        families=("D10",),
        changes=(
            Change(
                "_transactions/manager.py",
                "TransactionManager._end_unknown",
                "may_be_known or self._joining or self._offsets",
                "self._joining or self._offsets",
            ),
        ),
    ),
    Mutant(
        name="concurrent_transactions_is_done",
        breaks="an EndTxn that has to wait is taken for one that was done",
        families=("D11", "D10"),
        changes=(Change("_transactions/verdicts.py", "", "ErrorAction.RETRY_SOON", "ErrorAction.DONE"),),
    ),
    Mutant(
        name="lost_commit_is_excluded_by_a_refusal",
        breaks="who was replaced after its commit is told that nothing of it is there, and sends it again",
        tests=("tests/journeys/test_transaction_commit_abort.py",),
        changes=(
            Change(
                "_transactions/open_transaction.py",
                "OpenTransaction.was_answered",
                "self.commits_in_doubt -= _is_commit(request)",
                "self.commits_in_doubt *= not _is_commit(request)",
            ),
        ),
    ),
    Mutant(
        name="stray_needs_no_epoch",
        breaks="an EndTxn that arrives late ends the next transaction, on version 1",
        families=("D13",),
        changes=(
            Change(
                "_transactions/manager.py",
                "TransactionManager._end",
                "self._identity.needs_epoch or self._open.has_stray or self._is_renewing",
                "self._identity.needs_epoch or self._is_renewing",
            ),
        ),
    ),
    Mutant(
        name="identity_is_had_again_by_force",
        breaks="who was fenced asks for an epoch as if it were new, and fences its successor",
        families=("D12",),
        changes=(
            Change(
                "_transactions/requests.py",
                "TransactionRequests.init",
                "None if self._identity.producer_id is None else self.identity",
                "None",
            ),
        ),
    ),
)
