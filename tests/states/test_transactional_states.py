"""Every call in every place a producer with a transactional id can be in: the page about states says what comes."""

import pytest

from aioproducer import Producer
from aioproducer._producer.transaction import TransactionMethods
from tests.states.page import transactional_cells
from tests.states.transactional_situations import SITUATIONS, TRANSACTIONAL_CALLS, made_in


def test_page_has_every_cell() -> None:
    """No call and no place is left out."""
    assert transactional_cells().keys() == {(place, call) for place in SITUATIONS for call in TRANSACTIONAL_CALLS}


def test_every_transactional_verb_has_its_row() -> None:
    """A new one needs one; what is left out is for other classes."""
    verbs = {name for name in dir(TransactionMethods) if not name.startswith("_")} | {"committed_offsets"}
    verbs -= {"transaction_in_hand"}
    rows = {call.removeprefix("async with ").partition("(")[0] for call in TRANSACTIONAL_CALLS}

    assert verbs & set(dir(Producer)) == verbs
    assert verbs - rows == set()


@pytest.mark.parametrize("call", list(TRANSACTIONAL_CALLS))
@pytest.mark.parametrize("place", list(SITUATIONS))
def test_call_in_place(place: str, call: str) -> None:
    """On the producer's own loop, by the task that has brought it there."""
    assert made_in(place, call) == transactional_cells()[place, call]
