"""The constructor's arguments, where they cannot be."""

import pytest

from aioproducer import ConfigurationError
from aioproducer.compat import AIOKafkaProducer


@pytest.mark.parametrize(
    "option, value",
    [
        ("request_timeout_ms", "40000"),
        ("request_timeout_ms", None),
        ("request_timeout_ms", 1000.0),
        ("request_timeout_ms", 0),
        ("linger_ms", None),
        ("linger_ms", -1),
        ("max_batch_size", -1),
        ("bootstrap_servers", None),
        ("bootstrap_servers", "localhost:port"),
        ("bootstrap_servers", [b"localhost"]),
        ("partitioner", None),
        ("key_serializer", 5),
        ("value_serializer", "json"),
    ],
)
def test_option_that_cannot_be_is_named_as_it_was_given(option: str, value: object) -> None:
    """Not as the `Producer` behind it calls it, nor as what Python meets first."""
    with pytest.raises(ValueError, match=f"^{option} ") as refused:
        AIOKafkaProducer(**{option: value})  # type: ignore[arg-type]

    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.option == option


def test_request_timeout_may_be_as_long_as_aiokafkas() -> None:
    """A record's life is twice as long, as far as the protocol counts."""
    AIOKafkaProducer(request_timeout_ms=2**31 - 1)
