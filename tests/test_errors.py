"""Errors say what became of a record, can be caught by Python's words, and can be copied."""

import copy
import inspect
import pickle

import pytest

from aioproducer import errors
from aioproducer.errors import (
    BrokerError,
    BufferFullError,
    BufferTimeoutError,
    ConfigurationError,
    ConfigurationTypeError,
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    MessageTooLargeError,
    Outcome,
    ProducerClosedError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredError,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, KafkaError) and value is not UndeliveredError
]


def an_error(kind: type[KafkaError]) -> KafkaError:
    error = kind(
        "what happened",
        topic="t",
        partition=3,
        outcome=Outcome.UNKNOWN,
        attempts=2,
        elapsed_s=1.5,
        last_broker_error=BrokerError("before", code=7),
    )
    error.__cause__ = OSError("why")
    error.add_note("a note")
    return error


@pytest.mark.parametrize("kind", CLASSES)
def test_error_keeps_message_and_details(kind: type[KafkaError]) -> None:
    error = an_error(kind)

    assert str(error) == "what happened"
    assert (error.topic, error.partition, error.outcome) == ("t", 3, Outcome.UNKNOWN)
    assert (error.attempts, error.elapsed_s, str(error.last_broker_error)) == (2, 1.5, "before")


@pytest.mark.parametrize("kind", CLASSES)
def test_error_details_are_none_when_not_given(kind: type[KafkaError]) -> None:
    error = kind()

    assert (error.topic, error.partition, error.outcome, error.attempts) == (None, None, None, None)


@pytest.mark.parametrize("kind", CLASSES)
def test_fresh_error_says_the_same_without_the_traceback(kind: type[KafkaError]) -> None:
    error = an_error(kind)
    try:
        raise error
    except KafkaError:
        twin = error.fresh()

    assert type(twin) is kind
    assert twin is not error
    assert (str(twin), vars(twin), twin.args) == (str(error), vars(error), error.args)
    assert twin.__cause__ is error.__cause__
    assert twin.__traceback__ is None


def test_fresh_error_has_notes_of_its_own() -> None:
    """A note added to one delivery's error does not show in another's."""
    error = an_error(KafkaError)
    twin = error.fresh()

    twin.add_note("mine")

    assert error.__notes__ == ["a note"]


def test_with_details_replaces_some() -> None:
    error = an_error(BrokerError).with_details(partition=4)

    assert (error.topic, error.partition) == ("t", 4)


@pytest.mark.parametrize("kind", CLASSES)
def test_error_survives_pickle_and_copy(kind: type[KafkaError]) -> None:
    error = an_error(kind)
    error.last_broker_error = None

    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert (str(twin), vars(twin)) == (str(error), vars(error))


def test_error_refuses_an_unknown_detail() -> None:
    with pytest.raises(TypeError, match="KafkaError has no detail 'topik'"):
        KafkaError("x", topik="t")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "kind, parents",
    [
        (ConfigurationError, [ValueError]),
        (ConfigurationTypeError, [ConfigurationError, TypeError]),
        (IllegalStateError, [RuntimeError]),
        (ProducerClosedError, [IllegalStateError]),
        (errors.SerializationError, [ValueError]),
        (RecordTooLargeError, [ValueError]),
        (BufferTimeoutError, [BufferFullError, TimeoutError]),
        (errors.MetadataTimeoutError, [TimeoutError]),
        (DeliveryTimeoutError, [TimeoutError]),
        (UndeliveredError, [ExceptionGroup]),
        (errors.TlsError, [errors.BrokerConnectionError, ConnectionError]),
        (errors.TlsVerificationError, [errors.TlsError]),
        (errors.ProtocolError, [errors.BrokerConnectionError, ConnectionError]),
        (TopicAuthorizationError, [errors.AuthorizationError, BrokerError]),
        (MessageTooLargeError, [BrokerError, RecordTooLargeError]),
        (errors.ProducerFencedError, [errors.TransactionError]),
    ],
)
def test_error_has_parents(kind: type[KafkaError], parents: list[type[Exception]]) -> None:
    """Callers need not import our errors where Python has one."""
    assert all(issubclass(kind, parent) for parent in [*parents, KafkaError])


@pytest.mark.parametrize(
    "code, kind",
    [(29, TopicAuthorizationError), (10, MessageTooLargeError), (17, errors.InvalidTopicError), (7, BrokerError)],
)
def test_broker_error_of_code_has_the_codes_class(code: int, kind: type[BrokerError]) -> None:
    error = BrokerError.of(code, "no", retriable=True, topic="t", partition=1)

    assert type(error) is kind
    assert (error.code, error.retriable, error.topic_partition) == (code, True, ("t", 1))


def test_broker_error_has_no_topic_partition_without_a_partition() -> None:
    assert BrokerError("no", code=3, topic="t").topic_partition is None


def test_message_too_large_error_has_both_sizes() -> None:
    error = MessageTooLargeError("no", code=10, size_bytes=2, limit_bytes=1, option="message.max.bytes")

    assert (error.code, error.size_bytes, error.limit_bytes, error.option) == (10, 2, 1, "message.max.bytes")


def test_undelivered_error_counts_all_and_keeps_a_hundred() -> None:
    error = UndeliveredError.of([KafkaError(str(number)) for number in range(150)], count=40_000)

    assert error.count == 40_000
    assert len(error.exceptions) == errors.MAX_SUB_ERRORS
    assert str(error) == "40000 records were not delivered: 0 (100 sub-exceptions)"


def test_undelivered_error_can_be_split() -> None:
    error = UndeliveredError.of([KafkaError("a"), BrokerError("b", code=29)], count=2)

    part, rest = error.split(BrokerError)

    assert isinstance(part, UndeliveredError)
    assert [str(each) for each in part.exceptions] == ["b"]
    assert rest is not None
    assert [str(each) for each in rest.exceptions] == ["a"]


def test_undelivered_error_is_caught_as_kafka_error() -> None:
    error = UndeliveredError.of([KafkaError("a")], count=1)

    with pytest.raises(KafkaError, match="1 record was not delivered"):
        raise error


def test_undelivered_error_survives_pickle_and_fresh() -> None:
    error = UndeliveredError.of([KafkaError("a", topic="t")], count=7)

    for twin in (pickle.loads(pickle.dumps(error)), error.fresh()):
        assert (str(twin), twin.count) == (str(error), 7)
        assert [vars(each) for each in twin.exceptions] == [{"topic": "t"}]
