"""The protocol of the outbox, against a model of the database and of Kafka: interleavings, deaths and lost answers."""

import asyncio
import os
from collections.abc import Collection
from random import Random

import pytest

from aioproducer.outbox import _protocol
from aioproducer.outbox._errors import ForeignPositionError, InDoubtError
from aioproducer.outbox._protocol import (
    STOP,
    Batch,
    Policy,
    Position,
    Session,
    State,
    decode_claimed,
    encode_claimed,
    runs_of,
    settled,
)
from tests.outbox.protocol_model import Chooser, Deviations, History, ModelStore, Mostly, World

STEPS = 110
TWO = State(identity="i", epoch=3, number=7, claimed=(Batch(6, ((1, 2),)), Batch(7, ((3, 3),))), topic="t", token="b")


def ended(
    chooser: Chooser,
    *,
    policy: Policy = STOP,
    refused: frozenset[int] = frozenset(),
    shards: tuple[int, int] = (1, 1),
    retries_at: int | None = None,
    deletes_at: Collection[int] = (),
) -> World:
    history = History(
        chooser,
        steps=STEPS * max(shards),
        policy=policy,
        refused=refused,
        shards=shards,
        retries_at=retries_at,
        deletes_at=deletes_at,
    )
    return asyncio.run(history.run())


def check_exactly_once(world: World) -> None:
    assert sorted(world.log) == sorted(set(world.written) - world.parked.keys())
    for key in ("writer x", "writer y"):
        of_key = [each for each in world.log if world.keys[each] == key and each not in world.retried]
        assert of_key == sorted(of_key)


def single_deviations() -> list[dict[int, int]]:
    chooser = Deviations({})
    ended(chooser)
    return [{at: choice} for at, options in enumerate(chooser.options) for choice in range(1, options)]


@pytest.mark.slow(seconds=15)
def test_rows_are_sent_once_with_one_deviation() -> None:
    """Every request comes later, loses its answer, fails, or is the last of its relay; each transaction times out."""
    for deviation in single_deviations()[:: int(os.environ.get("AIOPRODUCER_OUTBOX_EVERY", "6"))]:
        check_exactly_once(ended(Deviations(deviation)))


@pytest.mark.slow(seconds=10)
def test_rows_are_sent_once_with_two_deviations() -> None:
    every, random = single_deviations(), Random(1)
    for _ in range(150):
        check_exactly_once(ended(Deviations({**random.choice(every), **random.choice(every)})))


def test_model_finds_a_database_that_does_not_look_at_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelStore, "_check", lambda _store, _state: None)

    check_that_it_is_found()


def test_model_finds_a_cluster_that_does_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "check", lambda *_: None)

    check_that_it_is_found()


def test_model_finds_a_start_that_does_not_read_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_protocol, "settled", lambda state, *_: state)

    check_that_it_is_found()


def test_model_finds_a_change_of_shards_that_finishes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(_session: Session) -> None: ...

    monkeypatch.setattr(Session, "finish", finish)
    monkeypatch.setattr(World, "is_refused", lambda _world, _is_other: False)

    check_that_it_is_found(shards=(2, 1))


@pytest.mark.parametrize("shards", [(2, 2), (2, 1), (1, 2)])
def test_rows_are_sent_once_by_relays_with_shards(shards: tuple[int, int]) -> None:
    """Also where their numbers differ: then each divides the outbox again as it takes the other's place."""
    for seed in range(40):
        check_exactly_once(ended(Mostly(seed), shards=shards))


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("shards", [(2, 1), (1, 2)])
def test_shards_change_once_with_one_deviation(shards: tuple[int, int]) -> None:
    chooser = Deviations({})
    ended(chooser, shards=shards)
    every = [{at: choice} for at, options in enumerate(chooser.options) for choice in range(1, options)]
    for deviation in every[:: 3 * int(os.environ.get("AIOPRODUCER_OUTBOX_EVERY", "6"))]:
        check_exactly_once(ended(Deviations(deviation), shards=shards))


def check_that_it_is_found(shards: tuple[int, int] = (1, 1), deletes: int = 0) -> None:
    def histories() -> None:
        for seed in range(30):
            deletes_at = Random(seed).sample(range(STEPS), deletes)
            check_exactly_once(ended(Mostly(seed), shards=shards, deletes_at=deletes_at))

    with pytest.raises(AssertionError):
        histories()


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_rows_are_sent_once_in_random_histories(start: int) -> None:
    for seed in range(start, start + 25):
        check_exactly_once(ended(Mostly(seed)))


@pytest.mark.parametrize("parks_key", [False, True])
def test_refused_rows_are_parked_once_in_random_histories(parks_key: bool) -> None:  # noqa: FBT001
    policy = Policy(parks=True, parks_key=parks_key)
    for seed in range(30):
        world = ended(Mostly(seed), policy=policy, refused=frozenset({2, 5}))
        check_exactly_once(world)
        assert not {2, 5} & set(world.log)
        if parks_key:
            for number in world.parked:
                assert not [each for each in world.log if each > number and world.keys[each] == world.keys[number]]


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("retries_at", range(20, 100, 5))
def test_parked_rows_are_sent_once_after_a_retry(retries_at: int) -> None:
    """Also those that come back before the batch from which they were taken is confirmed."""
    for seed in range(12):
        chooser = Mostly(seed)
        world = ended(chooser, policy=Policy(parks=True), refused=frozenset({2, 3, 5}), retries_at=retries_at)
        check_exactly_once(world)


def test_relay_goes_on_when_its_topic_is_deleted() -> None:
    """At any step; in doubt only where another relay takes its place meanwhile."""
    doubts = []
    for step in range(STEPS):
        world = ended(Deviations({}), deletes_at=[step])
        check_exactly_once(world)
        doubts.append(world.doubts)

    assert sum(doubts) < STEPS / 5


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_topics_of_positions_are_deleted_in_random_histories(start: int) -> None:
    for seed in range(start, start + 50):
        random = Random(seed)
        check_exactly_once(ended(Mostly(seed), deletes_at=random.sample(range(STEPS), 3)))


def test_position_is_not_below_a_batch_without_rows() -> None:
    """This history has one whose rows a person has found in Kafka, and then an anchor."""
    check_exactly_once(ended(Mostly(562), deletes_at=Random(562).sample(range(STEPS), 3)))


def test_model_finds_a_position_forgotten_with_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = ModelStore.forget_topic
    monkeypatch.setattr(ModelStore, "forget_topic", lambda store, state, _committed: forget(store, state, ()))

    check_that_it_is_found(deletes=3)


@pytest.mark.parametrize("number,left", [(5, [6, 7]), (6, [7]), (7, [])])
def test_start_keeps_batches_that_are_not_committed(number: int, left: list[int]) -> None:
    state = settled(TWO, Position(number, "b"))

    assert [batch.number for batch in state.claimed] == left
    assert state.former_token == "b"


def test_start_is_in_doubt_when_the_offset_is_gone() -> None:
    with pytest.raises(InDoubtError, match=r"batch 6, 7 with the rows 1 to 2, 3 was committed.*skip --batch"):
        settled(TWO, None)


def test_start_needs_no_offset_without_claims() -> None:
    """It then chooses a topic again, and writes the offset before the next claim."""
    state = State(identity="i", epoch=3, number=7, topic="t", token="b")

    assert settled(state, None).topic is None


@pytest.mark.parametrize("number,token", [(5, "other"), (8, "b"), (4, "b")])
def test_start_refuses_a_position_of_another_database(number: int, token: str) -> None:
    with pytest.raises(ForeignPositionError, match="restored from a backup"):
        settled(TWO, Position(number, token))


@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3], [1, 3, 4, 9]])
def test_claims_are_read_as_written(ids: list[int]) -> None:
    claimed = (Batch(4, runs_of(ids)), Batch(5, runs_of([20])))

    assert decode_claimed(encode_claimed(claimed)) == claimed
    assert [each for first, last in claimed[0].runs for each in range(first, last + 1)] == ids
