"""How long the next transaction waits for the markers of the last one."""

import pytest

from aioproducer._transactions.begin_delays import BROKER_WAITS_S, LONGEST_S, SHORTEST_REST, STEP_S, MarkerBackoff

ANSWER_S = 0.003


def live(pause: MarkerBackoff, *, markers_s: float, transactions: int, away_s: float = 0.0) -> int:
    """How many transactions had to wait for a broker whose markers take so long, and which is so far away."""
    waited = 0
    for _ in range(transactions):
        is_early = pause.seconds + away_s < markers_s
        waited += is_early
        pause.has_held = True
        pause.begin(ANSWER_S + away_s + (BROKER_WAITS_S if is_early else 0.0), 0.0)
    return waited


def test_nobody_waits_where_markers_are_written_in_time() -> None:
    """Or while the requests are on their way."""
    pause = MarkerBackoff()

    assert live(pause, markers_s=0.001, away_s=0.002, transactions=1_000) == 0
    assert pause.seconds == 0.0


def test_brokers_that_are_far_away_are_taken_for_early_ones_for_a_while_only() -> None:
    """Their answers take as long as those that waited; what that costs is little beside them."""
    pause = MarkerBackoff()
    paused_s = 0.0
    for _ in range(1_000):
        live(pause, markers_s=0.001, away_s=0.05, transactions=1)
        paused_s += pause.seconds

    assert paused_s < 0.01 * 1_000 * 0.05
    before = pause.seconds
    live(pause, markers_s=0.001, away_s=0.05, transactions=100)
    assert pause.seconds <= before


def test_first_answer_of_all_may_be_the_slowest() -> None:
    """The brokers, and this process, do then for the first time what they do."""
    pause = MarkerBackoff()
    pause.begin(3 * ANSWER_S, 0.0)
    live(pause, markers_s=0.002, transactions=50)

    assert live(pause, markers_s=0.002, transactions=1_000) < 100
    assert pause.seconds == pytest.approx(0.002, abs=STEP_S)


def test_less_than_half_a_grain_is_no_wait() -> None:
    """Whoever waits cannot keep it."""
    fine, coarse = MarkerBackoff(grain_s=0.0001), MarkerBackoff(grain_s=0.001)
    for pause in (fine, coarse):
        pause.begin(ANSWER_S, 0.0)
        pause.begin(ANSWER_S + BROKER_WAITS_S, 100.0)

    assert not fine.is_over(100.0 + STEP_S - 0.0001)
    assert coarse.is_over(100.0 + STEP_S - 0.0001)
    assert fine.is_over(100.0 + STEP_S - 0.00004)


@pytest.mark.parametrize("markers_s", [0.0004, 0.0013, 0.003, 0.009])
def test_pause_becomes_what_the_markers_take(markers_s: float) -> None:
    """And then the broker has to wait now and then only, which is how the pause follows it down."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)  # the very first has nothing to wait for
    live(pause, markers_s=markers_s, transactions=50)

    assert live(pause, markers_s=markers_s, transactions=1_000) < 250
    assert pause.seconds == pytest.approx(markers_s, abs=STEP_S)


def test_pause_follows_markers_that_have_become_quick() -> None:
    """It eases until a broker waits."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)
    live(pause, markers_s=0.008, transactions=100)
    live(pause, markers_s=0.001, transactions=400)

    assert pause.seconds < 0.001 + STEP_S


def test_pause_that_nobody_waited_for_teaches_nothing() -> None:
    """A caller slow enough by himself says nothing of those who are not."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)
    live(pause, markers_s=0.003, transactions=50)
    seconds = pause.seconds
    for _ in range(100):
        pause.begin(ANSWER_S, 5.0)

    assert (pause.seconds, pause.until) == (seconds, 5.0 + seconds)


def rests(pause: MarkerBackoff, *, markers_s: float, transactions: int) -> list[int]:
    """How many transactions went without a pause, each time after it had become too long."""
    without = []
    before = pause.seconds
    for _ in range(transactions):
        live(pause, markers_s=markers_s, transactions=1)
        if before and not pause.seconds:
            without.append(0)
        elif not pause.seconds and without:
            without[-1] += 1
        before = pause.seconds
    return without


def test_markers_that_take_too_long_are_not_waited_for() -> None:
    """A pause and the broker's wait would be paid for both."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)

    assert rests(pause, markers_s=2 * LONGEST_S, transactions=90) == [SHORTEST_REST, 2 * SHORTEST_REST]


def test_markers_that_take_too_long_again_and_again_are_waited_for_less_and_less_often() -> None:
    """Those in between would have the pause become as long as it may be, over and over."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)
    paused = 0
    for _ in range(10_000):
        for markers_s in (0.0, 2 * LONGEST_S):
            paused += pause.seconds > 0
            live(pause, markers_s=markers_s, transactions=1)

    assert paused < 4_000


def test_broker_that_was_slow_as_it_started_is_waited_for_soon() -> None:
    """A thousand transactions took a rest, each of which was put off by the broker for 20 ms."""
    pause = MarkerBackoff()
    pause.begin(ANSWER_S, 0.0)
    live(pause, markers_s=2 * LONGEST_S, transactions=round(LONGEST_S / STEP_S) + 1)
    assert pause.seconds == 0.0

    assert live(pause, markers_s=0.002, transactions=1_000) < 150
    assert rests(pause, markers_s=2 * LONGEST_S, transactions=45) == [SHORTEST_REST]
