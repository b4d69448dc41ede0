"""Any arguments to any verb: a record in the log, or an error at the call and nothing sent; the next record goes."""

import asyncio
import dataclasses
import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproducer import BytesSerializer, Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from aioproducer.records import Headers
from aioproducer.testing import FakeCluster
from tests.fakes.virtual_loop import ClusterLoop
from tests.produced import produce_requests, values

PARTITIONS = 2
VERBS = ("send", "send_and_wait", "enqueue", "send_nowait", "send_threadsafe", "send_many")
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MANY = 3  # records of a send_many


class Topic(enum.StrEnum):
    T = "t"


class Text(bytes):
    """Bytes, and more."""


class Replacing(ProducerInterceptor):
    """Returns an equal record, another object."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record)


class Passing(ProducerInterceptor):
    def __init__(self) -> None:
        self.ends = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        del metadata, headers
        self.ends += 1


class First:
    def partition(self, *_: object) -> int:
        return 0


HOOKS: dict[str, Callable[[], dict[str, object]]] = {
    "none": dict,
    "serializers": lambda: {"key_serializer": BytesSerializer(), "value_serializer": BytesSerializer()},
    "partitioner": lambda: {"partitioner": First()},
    "interceptors": lambda: {"interceptors": [Replacing(), Passing()]},
    "interceptor that is silent": lambda: {"interceptors": [Replacing()]},
}
"""Code of the user's that leaves every record as it is: with it, the same is refused and the same is sent."""


class Call(NamedTuple):
    verb: str
    topic: object
    options: dict[str, object]


def viewed() -> memoryview:
    """A view whose bytes do not stand together."""
    return memoryview(b"abcdef")[::2]


ODD: list[object] = [
    None,
    "text",
    5,
    -1,
    0,
    1,
    1.5,
    math.nan,
    True,
    2**31,
    2**63,
    -(2**80),
    b"",
    (),
    [],
    {},
    [5],
    object(),
]
TOPICS = st.one_of(
    st.just("t"),
    st.just(Topic.T),
    st.sampled_from(["", ".", "..", "a b", "a/b", "x" * 250, "\ud800"]),
    st.sampled_from([odd for odd in ODD if odd != "text"]),
)
BYTES = st.one_of(
    st.binary(max_size=50),
    st.sampled_from([None, bytearray(b"x"), memoryview(b"y"), viewed(), Text(b"z")]),
    st.sampled_from(ODD),
)
PAIRS = st.lists(
    st.one_of(
        st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)),
        st.sampled_from(
            [
                ("a", bytearray(b"1")),
                ["b", memoryview(b"2")],
                ("a",),
                ("a", "1"),
                (b"a", b"1"),
                ("\ud800", b""),
                5,
                "ab",
            ]
        ),
    ),
    max_size=3,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "value": BYTES,
        "key": BYTES,
        "partition": st.integers(-1, PARTITIONS) | st.sampled_from(ODD),
        "timestamp": st.integers(-1, 2**63) | st.sampled_from(ODD),
        "headers": PAIRS | st.sampled_from(ODD),
        "on_delivery": st.sampled_from([None, print, 5, "print"]),
    },
)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Any verb with any arguments; in a half of them at most one is odd."""
    options = draw(OPTIONS)
    if draw(st.booleans()):
        options = dict(list(options.items())[:1])
    topic = draw(TOPICS) if draw(st.booleans()) else "t"
    return Call(draw(st.sampled_from(VERBS)), topic, options)


def is_whole(value: object, low: int, high: int) -> bool:
    """A number in a range, and no bool."""
    return type(value) is int and low <= value <= high


def is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes | bytearray | memoryview)


def is_header(pair: object) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    name, value = pair
    return (
        isinstance(name, str)
        and is_bytes(value)
        and name.encode(errors="replace") == name.encode(errors="surrogatepass")
    )


def is_valid(call: Call) -> bool:
    """The rules for the arguments, once more and from the documentation."""
    given = {
        "partition": 0,
        "timestamp": 0,
        "headers": [],
        "on_delivery": None,
        "value": None,
        "key": None,
    } | call.options
    return (
        isinstance(call.topic, str)
        and call.topic not in {".", ".."}
        and TOPIC.fullmatch(call.topic) is not None
        and is_bytes(given["value"])
        and is_bytes(given["key"])
        and (given["partition"] is None or is_whole(given["partition"], 0, PARTITIONS - 1))
        and (given["timestamp"] is None or is_whole(given["timestamp"], 0, 2**63 - 1))
        and (
            given["headers"] is None
            or (isinstance(given["headers"], list | tuple) and all(map(is_header, given["headers"])))
        )
        and (given["on_delivery"] is None or callable(given["on_delivery"]))
    )


async def make(producer: Producer, call: Call) -> int:
    options = dict(call.options)
    if call.verb == "send_many":
        return await make_many(producer, call.topic, options)
    value = options.pop("value", None)
    given = getattr(producer, call.verb)(call.topic, value, **options)
    if call.verb == "send_threadsafe":
        given = asyncio.wrap_future(given)
    elif call.verb == "enqueue":
        given = await given
    await given
    return 1


async def make_many(producer: Producer, topic: object, options: dict[str, object]) -> int:
    """Three of the same; what is wrong with each of them is in the result."""
    keys = [options.pop("key", None)] * MANY
    sending = await producer.send_many(topic, [options.pop("value", None)] * MANY, keys=keys, **options)  # type: ignore[arg-type]
    result = await sending
    for error in result.errors.values():
        raise error
    return MANY


async def check_call(producer: Producer, cluster: FakeCluster, call: Call) -> None:
    """Make it; what is in the log afterwards is its record, or that of the next call."""
    records, requests = len(values(cluster, "t")), produce_requests(cluster)
    if is_valid(call):
        made = await make(producer, call)
        assert len(values(cluster, "t")) == records + made
        return
    with pytest.raises((TypeError, ValueError)):
        await make(producer, call)
    await producer.send("t", b"valid")
    assert len(values(cluster, "t")) == records + 1
    assert produce_requests(cluster) == requests + 1


async def story(given: Sequence[Call], hooks: Mapping[str, object]) -> None:
    """One producer, all calls. Kafka 3.9 takes any time of a record."""
    async with FakeCluster(1, topics={"t": PARTITIONS}, auto_create_topics=False, profile="3.9.1") as cluster:
        producer = await Producer(cluster.bootstrap_servers, **hooks).start()  # type: ignore[arg-type]  # of HOOKS
        await producer.partitions_for("t")
        for call in given:
            await check_call(producer, cluster, without_callback(call))
        await producer.close()


def without_callback(call: Call) -> Call:
    if call.verb != "send_many":
        return call
    return call._replace(options={name: value for name, value in call.options.items() if name != "on_delivery"})


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(given=st.lists(calls(), min_size=5, max_size=25), hooks=st.sets(st.sampled_from(sorted(HOOKS)), max_size=3))
def test_any_call_sends_its_record_or_nothing(given: list[Call], hooks: set[str]) -> None:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        runner.run(story(given, {name: value for hook in sorted(hooks) for name, value in HOOKS[hook]().items()}))
