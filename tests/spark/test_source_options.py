"""Options of a read: each wrong one is refused on the driver, by its name and with what is allowed."""

import re

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._options import OffsetsChoice, SourceOptions, consumer_arguments

READ = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders,visits"}

WRONG = {
    "pattern": ({"subscribePattern": "o.*"}, "unknown option subscribepattern; did you mean subscribe"),
    "empty topic": ({"subscribe": "a,,b"}, "subscribe='a,,b': must be names of topics"),
    "word": ({"startingOffsets": "first"}, "startingOffsets='first': must be earliest, latest or JSON"),
    "offset": ({"startingOffsets": '{"orders": {"0": -3}}'}, "must be earliest, latest or JSON"),
    "no partitions": ({"startingOffsets": '{"orders": 3}'}, "must be earliest, latest or JSON"),
    "stranger": (
        {"startingOffsets": '{"other": {"0": 3}}'},
        "startingOffsets names topics that subscribe does not: other",
    ),
    "end at the earliest": ({"endingOffsets": "earliest"}, "endingOffsets must be latest or JSON"),
    "limit": ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many': must be a whole number"),
    "isolation": ({"isolation": "none"}, "isolation='none': must be read_committed or read_uncommitted"),
    "group": ({"kafka.group.id": "g"}, "offsetGroup=NAME commits"),
    "reset": ({"kafka.auto.offset.reset": "latest"}, "give startingOffsets"),
    "unknown kafka": ({"kafka.fetch.min": "1"}, "unknown option kafka.fetch.min; known are kafka.fetch.min.bytes"),
    "kafka type": ({"kafka.fetch.min.bytes": "few"}, "kafka.fetch.min.bytes='few': must be a whole number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_option_is_named(case: str) -> None:
    """With what is allowed, or what was probably meant."""
    options, said = WRONG[case]
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SourceOptions.parse({**READ, **options}, is_stream=True)


def test_topics_must_be_given() -> None:
    """There is no default."""
    with pytest.raises(ConfigurationError, match="subscribe is missing"):
        SourceOptions.parse({"kafka.bootstrap.servers": "b1:9092"}, is_stream=False)


def test_batch_that_would_read_nothing() -> None:
    """A stream may begin at the latest offsets, a batch may not."""
    with pytest.raises(ConfigurationError, match="startingOffsets=latest reads nothing in a batch"):
        SourceOptions.parse({**READ, "startingOffsets": "latest"}, is_stream=False)


@pytest.mark.parametrize("is_stream, word", [(True, "latest"), (False, "earliest")])
def test_begins_as_sparks_own(is_stream: bool, word: str) -> None:  # noqa: FBT001  # a parameter
    """Where nothing is said."""
    assert SourceOptions.parse(READ, is_stream=is_stream).starting_offsets.word == word


def test_offsets_in_json() -> None:
    """Topics, partitions and offsets, with two numbers that have a meaning."""
    options = SourceOptions.parse({**READ, "startingOffsets": '{"orders": {"0": 23, "1": -2}}'}, is_stream=True)
    assert options.starting_offsets == OffsetsChoice("json", {"orders": {0: 23, 1: -2}})


def test_arguments_of_the_consumer() -> None:
    """Kafka's names become those of aiokafka."""
    given = {"bootstrap.servers": "b1:9092", "fetch.max.bytes": "1000", "check.crcs": "false"}
    assert dict(consumer_arguments(given)) == {
        "bootstrap_servers": "b1:9092",
        "fetch_max_bytes": 1000,
        "check_crcs": False,
    }


def test_errors_hold_no_secret() -> None:
    """The name of a refused option is enough."""
    with pytest.raises(ConfigurationError, match=re.escape("kafka.sasl.jaas.config")) as caught:
        SourceOptions.parse({**READ, "kafka.sasl.jaas.config": "hunter2"}, is_stream=False)
    assert "hunter2" not in str(caught.value)
