"""Every call, cancelled at every point where it suspends, in every state of the cluster, in every way there is."""

import pytest

from tests.cancellation.calls import TARGETS
from tests.cancellation.case import Case, cases
from tests.cancellation.scene import STATES


@pytest.mark.slow
@pytest.mark.parametrize("call, state", cases(TARGETS, STATES))
def test_cancelled_anywhere_in_any_way(call: str, state: str) -> None:
    """Nothing breaks, and nothing stays."""
    case = Case(TARGETS[call], state)

    case.sweep()

    assert case.failures == [], f"{len(case.failures)} of {case.runs} runs"
