"""The meaning of a failure for the loop."""

import pytest

from aioproducer import (
    BrokerError,
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    UndeliveredError,
)
from aioproducer.errors import TransactionTimeoutError
from aioproducer.integrations.aiokafka.failures import Meaning, meaning_of

ILLEGAL_GENERATION = 22


def abortable(cause: KafkaError) -> KafkaError:
    error = TransactionAbortableError("must be aborted")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error, meaning",
    [
        (ValueError("of the user's code"), Meaning.RECORD),
        (abortable(RecordTooLargeError("x")), Meaning.RECORD),
        (abortable(BrokerError.of(87, "x")), Meaning.RECORD),
        (abortable(UndeliveredError("x", [RecordTooLargeError("x")])), Meaning.RECORD),
        (abortable(DeliveryTimeoutError("x")), Meaning.PASSING),
        (abortable(BrokerError.of(ILLEGAL_GENERATION, "x")), Meaning.PASSING),
        (TransactionTimeoutError("x"), Meaning.PASSING),
        (DeliveryTimeoutError("x"), Meaning.PASSING),
        (TransactionAbortableError("x", last_broker_error=BrokerError.of(120, "x")), Meaning.PASSING),
        (ProducerFencedError("x"), Meaning.FATAL),
        (abortable(ProducerFencedError("or the transaction timed out")), Meaning.PASSING),
        (BrokerError.of(53, "x"), Meaning.FATAL),
        (BrokerError.of(49, "x"), Meaning.FATAL),
        (abortable(BrokerError.of(49, "x")), Meaning.FATAL),
        (abortable(BrokerError.of(29, "x")), Meaning.FATAL),
        (IllegalStateError("x"), Meaning.FATAL),
    ],
    ids=lambda value: (
        value.name if isinstance(value, Meaning) else f"{type(value).__name__}-{type(value.__cause__).__name__}"
    ),
)
def test_meaning(error: Exception, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning
