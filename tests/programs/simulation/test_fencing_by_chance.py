"""A fencing that waiting would have averted is not excused."""

import pytest

from tests.programs.simulation.fencing_by_chance import Claim, FencingByChance

TIMEOUT_S = 2.0
WHO = Claim(1_000, 0)
FIRST, RENEWAL, SUCCESSOR = (1, 0), (1, 1), (2, 0)


class Lives:
    """Producers whose connection number 1 is lost after a second."""

    def __init__(self, *, asked_on: tuple[int, int] = RENEWAL) -> None:
        self.now = 0.0
        self.fencing = FencingByChance(lambda: self.now, TIMEOUT_S)
        self.fencing.first_asked(FIRST)
        self.fencing.answered(FIRST)
        self.fencing.renewal_asked(asked_on)
        self.now = 1.0

    def abort_after(self, seconds: float) -> int:
        """How often a fencing is excused, when the request for another epoch finds a transaction after that."""
        self.fencing.connection_lost(1)
        self.now += seconds
        self.fencing.has_aborted(RENEWAL, WHO)
        return self.fencing.times


@pytest.mark.parametrize("seconds, times", [(0.0, 0), (1.9, 0), (2.0, 1), (9.0, 1)])
def test_late_request_is_waited_for_just_as_long_as_is_promised(seconds: float, times: int) -> None:
    assert Lives().abort_after(seconds) == times


def test_successor_cannot_know_what_to_wait_for() -> None:
    lives = Lives()
    lives.fencing.first_asked(SUCCESSOR)

    assert lives.abort_after(0.5) == 1


def test_answered_request_is_not_late() -> None:
    lives = Lives()
    lives.fencing.answered(RENEWAL)

    assert lives.abort_after(9.0) == 0


def test_request_on_another_connection_is_not_lost() -> None:
    assert Lives(asked_on=(2, 1)).abort_after(9.0) == 0


def test_first_request_that_is_lost_fences_whoever_has_the_id() -> None:
    lives = Lives()
    lives.fencing.first_asked(SUCCESSOR)
    lives.fencing.connection_lost(SUCCESSOR[0])

    assert lives.fencing.times == 1


def test_transaction_that_was_begun_late_is_aborted() -> None:
    lives = Lives()
    lives.fencing.begun_late(WHO)
    assert lives.abort_after(0.5) == 1

    lives = Lives()
    lives.fencing.begun_late(WHO)
    lives.fencing.ended(WHO)
    assert lives.abort_after(0.5) == 0
