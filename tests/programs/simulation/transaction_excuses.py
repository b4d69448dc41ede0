"""EXCUSE for transactions: where coordinators invent no codes, none fails by what one of them has answered but few.

A transaction that timed out, or that a late copy of a request has ended, is refused in words that say so. Anything
else that a coordinator says passes, or follows from what this producer has asked unsuccessfully or out of order.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.programs.simulation.history import Violation
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.transaction_stories import TransactionStory

_OVER: Final = frozenset(("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED"))
"""The transaction is over, for the coordinator."""

_STALE: Final = frozenset(("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"))
_EXCUSED: Final[Mapping[str, frozenset[str]]] = {
    "AddPartitionsToTxn": _OVER | {"INVALID_TXN_STATE"},
    "AddOffsetsToTxn": _OVER | {"INVALID_TXN_STATE"},
    "TxnOffsetCommit": _OVER,
    "EndTxn": _OVER | {"INVALID_TXN_STATE"},
}
_ANSWERED: Final = re.compile(rf"({'|'.join(_EXCUSED)}) of '[^']*': ([A-Z_]+): ")


def check_excuses(stories: Sequence[TransactionStory], plan: Plan) -> Iterator[Violation]:
    """Look at why transactions failed."""
    if "codes" in plan.enabled:
        return
    for story in stories:
        found = _ANSWERED.search(story.error)
        if found is not None and found[2] not in _EXCUSED[found[1]] and not (story.is_stale and found[2] in _STALE):
            yield Violation("EXCUSE", f"without need: {story}")
