"""Hooks around the native append: each is called once per record, and may itself send."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._native.delivery import Delivery
from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline
from aioproducer.errors import SerializationError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import Headers, ProducerRecord
from tests.fakes.core_parts import CoreParts, PlainPreparation, pipeline_of


class Passing(ProducerInterceptor):
    def __init__(self, *, copies: bool) -> None:
        self.copies = copies

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if not self.copies:
            return record
        return ProducerRecord(
            record.topic, record.value, record.key, record.partition, record.timestamp, record.headers
        )


class Sees(ProducerInterceptor):
    def __init__(self) -> None:
        self.seen: list[ProducerRecord] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record)
        return record


class First:
    def partition(self, *_: object) -> int:
        return 0


def identity(value: object) -> bytes | None:
    return value  # type: ignore[return-value]


def sections(core: CoreParts) -> list[bytes]:
    core.flush()
    return sorted(bytes(batch.records()) for batch in core.drain())


NULLABLE = st.none() | st.binary(max_size=50)
RECORDS = st.lists(
    st.tuples(
        NULLABLE,
        NULLABLE,
        st.sampled_from([None, 0]),
        st.integers(0, 2**63 - 1),
        st.none() | st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=10,
)
HOOKS: dict[str, Callable[[CoreParts], RecordPipeline]] = {
    "serializers": lambda core: pipeline_of(core, serializer=identity),
    "interceptor": lambda core: pipeline_of(core, interceptors=[Passing(copies=False)]),
    "interceptors that copy": lambda core: pipeline_of(core, interceptors=[Passing(copies=True), Passing(copies=True)]),
    "all": lambda core: pipeline_of(core, interceptors=[Passing(copies=False)], serializer=identity),
}


@pytest.mark.parametrize("hooks", HOOKS)
@given(records=RECORDS)
@settings(max_examples=50)
def test_hooks_that_change_nothing_leave_the_bytes(
    hooks: str, records: list[tuple[bytes | None, bytes | None, int | None, int, Headers | None]]
) -> None:
    plain, hooked = CoreParts(leaders=(1, 1)), CoreParts(leaders=(1, 1))
    pipeline = HOOKS[hooks](hooked)
    for value, key, partition, timestamp, headers in records:
        plain.appender.append("t", value, key, partition, timestamp, headers, None)
        assert type(pipeline.take("t", value, key, partition, timestamp, headers, None)) is Delivery

    assert sections(hooked) == sections(plain)


def test_partitioner_chooses_natively_what_it_chooses() -> None:
    core = CoreParts(leaders=(1, 1))
    delivery = pipeline_of(core, partitioner=First()).take("t", b"v", b"k", None, None, None, None)

    assert isinstance(delivery, Delivery)
    place = delivery._batch_result.topic_partition
    assert place is not None
    assert place.partition == 0


def test_record_that_a_serializer_sends_is_before_its_own() -> None:
    """The outer record is appended when its serializer has returned; both are whole."""
    core = CoreParts()
    sent: list[object] = []

    def sends(value: object) -> bytes:
        if value == "outer" and not sent:
            sent.append(pipeline.take("t", "inner", None, 0, 5, [("h", b"inner")], None))
        return str(value).encode()

    pipeline = pipeline_of(core, serializer=sends)
    outer = pipeline.take("t", "outer", None, 0, 5, [("h", b"outer")], None)

    assert isinstance(outer, Delivery)
    assert isinstance(sent[0], Delivery)
    assert (sent[0]._position, outer._position) == (0, 1)
    (section,) = sections(core)
    assert section.index(b"inner") < section.index(b"outer")


def test_hooks_run_once_where_the_append_is_busy() -> None:
    """A record sent inside another append has to wait; a later append has the serialized bytes."""
    core = CoreParts()
    calls: list[object] = []
    taken: list[object] = []

    def counts(value: object) -> bytes:
        calls.append(value)
        return str(value).encode()

    pipeline = pipeline_of(core, serializer=counts)

    def inside() -> None:
        core.on_clock = lambda: None
        taken.append(pipeline.take("t", "inner", None, 0, None, None, None))

    core.on_clock = inside
    assert core.appender.append("t", b"outer", None, 0, None, None, None) is not None

    (record,) = taken
    assert isinstance(record, RecordArguments)
    assert (record.topic, record.value, record.partition, calls) == ("t", b"inner", 0, ["inner"])
    assert record.append_to(core.appender) is not None
    assert calls == ["inner"]


def test_refusal_of_an_intercepted_record_is_notified_once() -> None:
    def fails(value: object) -> bytes:
        raise KeyError(value)

    preparation = PlainPreparation()
    pipeline = pipeline_of(CoreParts(), interceptors=[Passing(copies=False)], serializer=fails, preparation=preparation)
    with pytest.raises(SerializationError):
        pipeline.take("t", "v", None, None, None, None, None)

    assert preparation.refusals == ["t: SerializationError"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", b"v", b"k", -1, None, None),
        ("t", b"v", b"k", True, None, None),
        ("t", b"v", b"k", None, -1, None),
        ("t", b"v", b"k", None, 2**63, None),
        ("t", b"v", b"k", None, None, [("name", "text")]),
        ("t", b"v", b"k", None, None, [("\ud800", b"")]),
        ("a b", b"v", b"k", None, None, None),
    ],
)
def test_interceptors_never_see_an_invalid_record(arguments: tuple[str, bytes, bytes, int, int, Headers]) -> None:
    """The record is made natively, with the checks of `ProducerRecord`."""
    sees = Sees()

    with pytest.raises((TypeError, ValueError)):
        pipeline_of(CoreParts(), interceptors=[sees]).take(*arguments, None)

    assert sees.seen == []


def test_record_that_interceptors_see_is_as_one_made_in_python() -> None:
    """Records are equal, with the same text, frozen, and with headers as a tuple."""
    sees = Sees()
    seen, pipeline = sees.seen, pipeline_of(CoreParts(), interceptors=[sees])
    pipeline.take("t", b"v", b"k", 0, 5, [("h", None), ("b", bytearray(b"x"))], None)
    pipeline.take("t", None, None, None, None, None, None)

    expected = [ProducerRecord("t", b"v", b"k", 0, 5, (("h", None), ("b", b"x"))), ProducerRecord("t")]
    assert seen == expected
    assert [hash(record) for record in seen] == [hash(record) for record in expected]
    assert [repr(record) for record in seen] == [repr(record) for record in expected]
    with pytest.raises(AttributeError):
        seen[0].topic = "u"  # type: ignore[misc]
