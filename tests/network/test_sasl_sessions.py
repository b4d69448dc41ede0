"""Sessions that end under load (threat T14): requests at every point of an exchange, and brokers that do not behave."""

import asyncio
from collections.abc import Coroutine

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer._network.requests import Lost
from aioproducer.errors import KafkaError
from tests.fakes.sasl_broker import PLACE, SaslBroker, Secured
from tests.fakes.virtual_loop import ClusterLoop
from tests.network.test_sasl_connection import Requests

MECHANISMS = st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
PAUSES = st.lists(st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.0, 1.7, 2.5, 60.0]), min_size=1, max_size=40)


def in_virtual_time(story: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        runner.run(story)


async def load(  # noqa: PLR0913  # what a schedule consists of
    *,
    mechanism: str,
    pauses: list[float],
    acks: list[int],
    verdict_after_s: float,
    password_after_s: float,
    is_patient: bool,
    lifetime_ms: int,
) -> None:
    async def password() -> str:
        await asyncio.sleep(password_after_s)
        return "canary-secret"

    broker = SaslBroker(lifetime_ms, verdict_after_s=verdict_after_s, mechanism=mechanism)
    secured = Secured(broker, password if password_after_s else None)
    if is_patient:
        secured.sasl.be_patient(PLACE)
    await secured.connection.ready
    requests = Requests(secured)
    for index, pause in enumerate(pauses):
        requests.send(acks=acks[index % len(acks)])
        await asyncio.sleep(pause)
    await asyncio.sleep(30)

    assert broker.crimes == []
    assert broker.served == list(range(requests.sent))
    assert sorted(number for number, _ in requests.ends) == broker.served
    assert requests.answered == sorted(requests.answered)
    assert not requests.lost()


@settings(max_examples=80, deadline=None)
@given(
    mechanism=MECHANISMS,
    pauses=PAUSES,
    acks=st.lists(st.sampled_from([-1, 0]), min_size=1, max_size=3),
    verdict_after_s=st.sampled_from([0.0, 0.01, 0.2, 0.9]),
    password_after_s=st.sampled_from([0.0, 0.01, 1.0, 3.0]),
    is_patient=st.booleans(),
    lifetime_ms=st.sampled_from([0, 500, 1000, 2000, 10_000]),
)
@example(
    mechanism="PLAIN",
    pauses=[0.05] * 40,
    acks=[-1],
    verdict_after_s=0.2,
    password_after_s=0.0,
    is_patient=False,
    lifetime_ms=2000,
)
def test_no_request_is_lost_or_slips_into_an_exchange(  # noqa: PLR0913, PLR0917
    mechanism: str,
    pauses: list[float],
    acks: list[int],
    verdict_after_s: float,
    password_after_s: float,
    is_patient: bool,  # noqa: FBT001
    lifetime_ms: int,
) -> None:
    if len(set(acks)) > 1:  # one producer has one kind, and its questions have an answer
        acks = [0, -1]
    story = load(
        mechanism=mechanism,
        pauses=pauses,
        acks=acks,
        verdict_after_s=verdict_after_s,
        password_after_s=password_after_s,
        is_patient=is_patient,
        lifetime_ms=lifetime_ms,
    )
    in_virtual_time(story)


async def break_off(mechanism: str, at_s: float, says: tuple[int, str] | None) -> None:
    broker = SaslBroker(2_000, verdict_after_s=0.2, mechanism=mechanism)
    secured = Secured(broker)
    try:
        async with asyncio.timeout(at_s):
            await secured.connection.ready
    except (TimeoutError, KafkaError):
        broker.transport.close()
        await secured.connection.closed
        return
    requests = Requests(secured)
    for _ in range(60):
        if asyncio.get_running_loop().time() >= 1000.0 + at_s:
            if says is None:
                broker.transport.close()
                break
            broker.says = says
        if secured.connection.is_open:
            requests.send()
        await asyncio.sleep(0.05)
    broker.transport.close()
    await secured.connection.closed
    check_ends(requests, broker)


def check_ends(requests: Requests, broker: SaslBroker) -> None:
    kinds = [type(end) for _, end in requests.ends]
    assert len(kinds) == requests.sent
    assert kinds == sorted(kinds, key=lambda kind: kind is Lost)  # answered, then lost, in the order of the calls
    assert [number for number, _ in requests.ends] == list(range(requests.sent))
    assert not any(number in broker.served for number, end in requests.lost().items() if end.is_unprocessed)


@settings(max_examples=60, deadline=None)
@given(
    mechanism=MECHANISMS,
    at_s=st.floats(0.0, 2.6),
    says=st.sampled_from([None, (58, "no"), (58, "Cannot change principals"), (34, "odd")]),
)
def test_connection_that_breaks_ends_every_request_once(
    mechanism: str, at_s: float, says: tuple[int, str] | None
) -> None:
    """What is said to be unprocessed was not served."""
    in_virtual_time(break_off(mechanism, at_s, says))
