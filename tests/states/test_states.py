"""Every call in every state, cell by cell, and any walk through them: the page about states says what comes of it."""

import asyncio
import contextlib
import warnings

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from aioproducer import KafkaError, Producer
from aioproducer._producer.producer_state import TRANSITIONS, ProducerState
from aioproducer._producer.transaction import TransactionMethods
from aioproducer.testing import FakeCluster
from tests.fakes.producing import background_tasks
from tests.fakes.virtual_loop import ClusterLoop
from tests.states.situations import (
    CALLS,
    METADATA,
    PRODUCE,
    STATES,
    TOPIC,
    after_its_loop,
    cells,
    in_a_fork,
    on_another_thread,
    on_the_loop,
    outcome,
    transactional_cells,
)
from tests.states.transactional_situations import SITUATIONS, TRANSACTIONAL_CALLS, made_in

ELSEWHERE = {
    "on another thread": on_another_thread,
    "when its loop has ended": after_its_loop,
    "in a forked child": in_a_fork,
}


def test_page_has_every_cell() -> None:
    assert cells().keys() == {(place, call) for place in (*STATES, *ELSEWHERE) for call in CALLS}


def test_every_state_has_its_column() -> None:
    assert set(STATES) == {state.value for state in ProducerState}


def test_every_public_call_has_its_row() -> None:
    """A new method needs one; `send_arrow` is `send_many` in this, what others leave out is for other classes.

    Transactions have places of their own: test_transactional_states.py.
    """
    public = {name for name in dir(Producer("h:1")) if not name.startswith("_")}
    left_out = {"send_arrow", "mark_forked", "use_sources", "use_log", "topic_of", "handed"}
    left_out |= {name for name in dir(TransactionMethods) if not name.startswith("_")} - {"partitions_for"}
    left_out |= {"committed_offsets", "client_instance_id"}  # of producers with an option

    assert public - left_out - {call.partition("(")[0] for call in CALLS} == set()


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("state", list(STATES))
def test_call_in_state(state: str, call: str) -> None:
    assert on_the_loop(state, call) == cells()[state, call]


@pytest.mark.slow
@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("place", list(ELSEWHERE))
def test_call_elsewhere(place: str, call: str) -> None:
    assert ELSEWHERE[place](call) == cells()[place, call]


def state_of(producer: Producer) -> str:
    return repr(producer).split()[2]


def reachable(before: str, after: str) -> bool:
    seen, ahead = set[ProducerState](), [ProducerState(before)]
    while ahead:
        state = ahead.pop()
        if state not in seen:
            seen.add(state)
            ahead.extend(TRANSITIONS[state])
    return ProducerState(after) in seen


class Walk(RuleBasedStateMachine):
    """Calls, trouble and time in any order; each call is held to the cell of the state it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=ClusterLoop)
        self.cluster = FakeCluster(1, topics={TOPIC: 1})
        self.producer = self.runner.run(self._of_started_cluster())
        self.stalls: list[object] = []

    async def _of_started_cluster(self) -> Producer:
        await self.cluster.start()
        return Producer(self.cluster.bootstrap_servers, close_timeout_ms=60_000, max_block_ms=60_000)

    @rule(call=st.sampled_from(list(CALLS)))
    def make(self, call: str) -> None:
        before = state_of(self.producer)
        expected = cells()[before, call]

        found = self.runner.run(outcome(self.producer, call))

        assert found in {expected, *self.made_by_trouble(call, expected)}
        assert reachable(before, state_of(self.producer))

    def made_by_trouble(self, call: str, expected: str) -> set[str]:
        """Return other outcomes of a call while a broker is silent, or was, or has not been asked for the topic yet."""
        if call.startswith("close("):
            return {"ok", "UndeliveredError", *(["waits"] if self.stalls else [])}
        if expected != "ok":
            return set()
        others = {"send_nowait": {"MetadataNotReadyError"}, "flush()": {"UndeliveredError"}}.get(call, set())
        return others | ({"waits"} if self.stalls else set())

    @rule(call=st.sampled_from(["start()", "close()"]))
    def begin(self, call: str) -> None:
        """Begin to start or close, and let another task wait for it."""

        async def begin() -> None:
            task = asyncio.ensure_future(CALLS[call](self.producer))  # type: ignore[arg-type]  # these two are awaitable
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.sleep(0.01)

        self.runner.run(begin())

    @rule(of=st.sampled_from([METADATA, PRODUCE]))
    def stall(self, of: object) -> None:
        """Have the broker answer nothing more of a kind."""
        self.stalls.append(self.cluster.faults.stall(of))  # type: ignore[arg-type]  # two of the kind it takes

    @precondition(lambda self: self.stalls)
    @rule()
    def answer(self) -> None:
        async def heal() -> None:
            for stall in self.stalls:
                self.cluster.faults.remove(stall)  # type: ignore[arg-type]  # what `stall` gave
            await asyncio.sleep(1)

        self.runner.run(heal())
        self.stalls.clear()

    @rule(kind=st.sampled_from(["sender", "metadata", "supervisor"]))
    def die(self, kind: str) -> None:
        async def cancel() -> None:
            if kind in background_tasks():
                background_tasks()[kind].cancel()
            await asyncio.sleep(0.1)

        self.runner.run(cancel())

    @rule(seconds=st.sampled_from([0.01, 3.0, 40.0, 130.0]))
    def wait(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    def teardown(self) -> None:
        async def end() -> None:
            with contextlib.suppress(KafkaError):
                await self.producer.close(0)
            assert background_tasks() == {}
            await self.cluster.stop()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.runner.run(end())
            self.runner.close()


Walk.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestWalk = pytest.mark.slow(Walk.TestCase)


# Every call in every place a producer with a transactional id can be in: the page about states says what comes


def test_page_has_every_transactional_cell() -> None:
    assert transactional_cells().keys() == {(place, call) for place in SITUATIONS for call in TRANSACTIONAL_CALLS}


def test_every_transactional_verb_has_its_row() -> None:
    """A new method needs a row; the excluded ones belong to other classes."""
    verbs = {name for name in dir(TransactionMethods) if not name.startswith("_")} | {"committed_offsets"}
    verbs -= {"transaction_in_hand"}
    rows = {call.removeprefix("async with ").partition("(")[0] for call in TRANSACTIONAL_CALLS}

    assert verbs & set(dir(Producer)) == verbs
    assert verbs - rows == set()


@pytest.mark.parametrize("call", list(TRANSACTIONAL_CALLS))
@pytest.mark.parametrize("place", list(SITUATIONS))
def test_call_in_place(place: str, call: str) -> None:
    """On the producer's own loop, by the task that made the situation."""
    assert made_in(place, call) == transactional_cells()[place, call]
