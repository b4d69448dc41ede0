"""Whether brokers answer, from the times of questions and answers."""

from aioproducer._network.silence import Silence


def test_question_lasts_until_any_answer() -> None:
    silence = Silence()
    silence.asked(10.0)
    silence.asked(12.0)  # the same question, to another broker

    asked = silence.for_s(15.0)
    silence.answered_at = 14.0
    silence.answered()

    assert (asked, silence.for_s(20.0)) == (5.0, 0.0)


def test_brokers_are_out_of_reach_until_one_answers() -> None:
    silence = Silence()
    silence.failed(5.0)  # nothing was asked, or a refusal was the answer
    before = silence.is_out_of_reach
    silence.asked(10.0)
    silence.failed(11.0)
    after = silence.is_out_of_reach
    silence.answered_at = 12.0

    assert (before, after, silence.is_out_of_reach) == (False, True, False)


def test_fresh_answer_or_open_question_is_not_worth_asking() -> None:
    silence = Silence()
    silence.answered_at = 10.0
    fresh, old = silence.is_worth_asking(10.1), silence.is_worth_asking(11.0)
    silence.asked(11.0)

    assert (fresh, old, silence.is_worth_asking(12.0)) == (False, True, False)
