"""Each option set of a read, as Spark's driver asks the reader, on the embedded cluster and without a session."""

from collections.abc import Mapping

import pytest
from pyspark.sql.datasource import InputPartition

from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.spark._reader import KafkaReader, KafkaStreamReader
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from tests.spark.option_sets import BATCHES, STREAMS, OptionSet, fill, options_of, places

TOPIC = "option-sets"


@pytest.fixture(scope="module")
def servers(embedded: ThreadedFakeCluster) -> str:
    fill(embedded.bootstrap_servers, TOPIC)
    return embedded.bootstrap_servers


def parsed(servers: str, name: str, sets: Mapping[str, OptionSet]) -> SourceOptions:
    given = {"kafka.bootstrap.servers": servers, **options_of(name, sets, TOPIC)}
    return SourceOptions.parse(given, is_stream=sets is STREAMS)


def planned(partitions: list[InputPartition]) -> list[tuple[str, int, int]]:
    """Return each record of a plan."""
    ranges = [partition.value for partition in partitions]
    return sorted((each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end))


def batch(servers: str, name: str) -> list[tuple[str, int, int]]:
    return planned(list(KafkaReader(parsed(servers, name, BATCHES)).partitions()))


def stream(servers: str, name: str) -> list[tuple[str, int, int]]:
    reader = KafkaStreamReader(parsed(servers, name, STREAMS))
    start, found = reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found += planned(list(reader.partitions(start, end)))
        start = end
    return sorted(found)


@pytest.mark.parametrize("name", BATCHES)
def test_batch_is_planned_or_refused_on_the_driver(servers: str, name: str) -> None:
    """As by Spark's own source, which does some of it in the tasks."""
    if (rows := BATCHES[name].rows) is None:
        with pytest.raises((ConfigurationError, KafkaError)):
            batch(servers, name)
    else:
        assert batch(servers, name) == places(rows, TOPIC)


@pytest.mark.parametrize("name", STREAMS)
def test_stream_is_planned_or_refused_on_the_driver(servers: str, name: str) -> None:
    if (rows := STREAMS[name].rows) is None:
        with pytest.raises((ConfigurationError, KafkaError)):
            stream(servers, name)
    else:
        assert stream(servers, name) == places(rows, TOPIC)


SAID = {
    "start, one left out": "startingOffsets: all partitions must be given (-1: latest, -2: earliest); left out: "
    "option-sets-2",
    "start, unknown partition": "startingOffsets: topic 'option-sets' has no partition 7",
    "start behind end": "startingOffsets and endingOffsets: option-sets-0 begins at offset 5, which is behind "
    "its end, 4",
    "start before the log": "offsets 1 to 3 of option-sets-2 are deleted",
    "end beyond the log": "offsets 10 to 50 of option-sets-0 are not there; it ends at 10",
    "start at a time that one has not": "startingTimestamp: option-sets-1 has no record of the time 1700000006000",
    "start at times, one left out": "startingOffsetsByTimestamp: all partitions must be given",
    "assign, unknown topic": "assign: no topic 'nowhere' exists",
}


@pytest.mark.parametrize("name", SAID)
def test_refusal_names_option_and_partition(servers: str, name: str) -> None:
    with pytest.raises((ConfigurationError, KafkaError)) as caught:
        batch(servers, name)
    assert SAID[name] in str(caught.value)


PARTS = {"nothing said": 3, "small parts": 7, "more parts": 8, "fewer parts": 3}


@pytest.mark.parametrize("name", PARTS)
def test_batch_has_parts(servers: str, name: str) -> None:
    """Larger ranges have more."""
    assert len(KafkaReader(parsed(servers, name, BATCHES)).partitions()) == PARTS[name]
