"""Options of a read, with the names of Spark's own source: read and checked on the driver, before any task. No I/O."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import kafka_name, python_name
from aioproducer.config.producer_config import option_kinds
from aioproducer.errors import ConfigurationError
from aioproducer.integrations._aiokafka_security import check_readable
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.spark._offsets import EARLIEST, LATEST, OffsetsChoice, Place
from aioproducer.spark._options import (
    KAFKA_PREFIX,
    OptionReader,
    boolean,
    duration_ms,
    in_kafkas_names,
    natural,
    of_data_source,
    one_of,
    positive,
    text,
)
from aioproducer.spark._token_option import with_token_provider

POLL_TIMEOUT_MS: Final = 120_000
"""How long a task waits without a record before it fails, as with Spark's own source."""
FETCH_ATTEMPTS: Final = 3
FETCH_INTERVAL_MS: Final = 1_000
TRIGGER_DELAY_MS: Final = 900_000
_LARGEST: Final = 2**63 - 1
"""Of Kafka's offsets and times."""

NOT_READABLE: Final = {
    "auto.offset.reset": "give startingOffsets",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "enable.auto.commit": "give offsetGroup",
    "interceptor.classes": "transform the DataFrame",
    "security.providers": "classes of Java do not run here",
    "config.providers": "classes of Java do not run here; give the values",
}
"""Property of a consumer -> what to give instead."""
WITHOUT_EFFECT: Final = (
    *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records"),
    *("auto.commit.interval.ms", "allow.auto.create.topics", "exclude.internal.topics", "default.api.timeout.ms"),
    *("client.rack", "client.dns.lookup", "receive.buffer.bytes", "send.buffer.bytes"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.max.ms"),
    *("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    *("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
    *("metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
    *("auto.include.jmx.reporter", "enable.metrics.push"),
)
"""Kafka's properties of a consumer that change no row: no consumer group is used, and aiokafka has no such others."""


# Readers of values: a ValueError is raised for anything else, and its text is what is allowed


def offsets_choice(given: str) -> OffsetsChoice:
    """Return what `earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}` says."""
    expected = 'earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}} (-2: earliest, -1: latest)'
    match given.strip().lower():
        case "earliest":
            return OffsetsChoice("earliest", {})
        case "latest":
            return OffsetsChoice("latest", {})
    return OffsetsChoice("json", _numbers_of_partitions(given, EARLIEST, expected))


def times(given: str) -> OffsetsChoice:
    """Return what `{"topic": {"0": 1700000000000}}` says."""
    expected = 'JSON such as {"orders": {"0": 1700000000000}}, milliseconds since 1970 for each partition'
    return OffsetsChoice("times", _numbers_of_partitions(given, 0, expected))


def time(given: str) -> OffsetsChoice:
    """Return what a time in milliseconds says, for all partitions."""
    if not given.strip().isdecimal():
        raise ValueError("milliseconds since 1970")
    return OffsetsChoice("time", {}, int(given))


def _numbers_of_partitions(given: str, least: int, expected: str) -> dict[str, dict[int, int]]:
    try:
        found = {
            topic: {natural(number): _whole(value, least) for number, value in partitions.items()}
            for topic, partitions in json.loads(given).items()
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ValueError(expected) from None
    return found


def _whole(value: object, least: int) -> int:
    """Return a number of JSON that is whole, and no bool, nor text."""
    if type(value) is not int or not least <= value <= _LARGEST:
        raise ValueError
    return value


def topic_names(given: str) -> tuple[str, ...]:
    """Return topics from a list with commas."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise ValueError("names of topics with commas between them")
    return names


def topic_pattern(given: str) -> re.Pattern[str]:
    """Return a pattern, which topics need to match only somewhere, as with Spark's own source."""
    expected = "a regular expression as Python's module re takes it; in it stands what is to be found in a topic's name"
    if not given.strip():
        raise ValueError(expected)
    try:
        return re.compile(given.strip())
    except re.error as error:
        raise ValueError(f"{expected} ({error})") from None


def partition_list(given: str) -> tuple[Place, ...]:
    """Return partitions from `{"orders": [0, 1]}`."""
    try:
        found = tuple((topic, _whole(number, 0)) for topic, numbers in json.loads(given).items() for number in numbers)
    except (ValueError, AttributeError, TypeError, RecursionError):
        found = ()
    if not found:
        raise ValueError('JSON such as {"orders": [0, 1], "visits": [2]}')
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a read; the fields have their names, which are in camel case there."""

    kafka: Mapping[str, str] = field(repr=False)  # may hold passwords
    subscribe: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: tuple[Place, ...]
    starting_offsets: OffsetsChoice
    ending_offsets: OffsetsChoice
    allows_latest_without_match: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fails_on_data_loss: bool
    isolation: str
    offset_group: str | None
    includes_headers: bool
    fetch_attempts: int
    fetch_interval_ms: int
    poll_timeout_ms: int

    @classmethod
    @clears_frames
    def parse(cls, given: Mapping[str, str], *, is_stream: bool | None) -> "SourceOptions":
        """Return the options of a read; a stream begins at the latest offset unless told otherwise, as Spark's own.

        Args:
            given: by Spark.
            is_stream: None if that is not known yet.

        Raises:
            ConfigurationError: an option is unknown, wrong or missing, or does not fit the others.
        """
        reader = OptionReader(given)
        for name in ("kafka.isolation.level", "kafka.isolation_level"):
            reader.apply_alias(name, "isolation")
        default = OffsetsChoice("earliest" if is_stream is False else "latest", {})
        # One after the other, the next wins, as with Spark's own source.
        start = reader.take("startingOffsets", offsets_choice, default)
        start = reader.take("startingOffsetsByTimestamp", times, start)
        start = reader.take("startingTimestamp", time, start)
        end = reader.take("endingOffsets", offsets_choice, OffsetsChoice("latest", {}))
        end = reader.take("endingOffsetsByTimestamp", times, end)
        end = reader.take("endingTimestamp", time, end)
        without_match = reader.take("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error")
        options = cls(
            kafka=source_properties(reader.take_prefixed(KAFKA_PREFIX)),
            subscribe=reader.take("subscribe", topic_names, ()),
            pattern=reader.take("subscribePattern", topic_pattern, None),
            assigned=reader.take("assign", partition_list, ()),
            starting_offsets=start,
            ending_offsets=end,
            allows_latest_without_match=without_match == "latest",
            max_offsets_per_trigger=reader.take("maxOffsetsPerTrigger", positive, None),
            min_offsets_per_trigger=reader.take("minOffsetsPerTrigger", positive, None),
            max_trigger_delay_ms=reader.take("maxTriggerDelay", duration_ms, TRIGGER_DELAY_MS),
            min_partitions=reader.take("minPartitions", positive, None),
            max_records_per_partition=reader.take("maxRecordsPerPartition", positive, None),
            fails_on_data_loss=reader.take("failOnDataLoss", boolean, default=True),
            isolation=reader.take("isolation", one_of("read_committed", "read_uncommitted"), "read_committed"),
            offset_group=reader.take("offsetGroup", text, None),
            includes_headers=reader.take("includeHeaders", boolean, default=False),
            fetch_attempts=reader.take("fetchOffset.numRetries", positive, FETCH_ATTEMPTS),
            fetch_interval_ms=reader.take("fetchOffset.retryIntervalMs", natural, FETCH_INTERVAL_MS),
            poll_timeout_ms=reader.take("kafkaConsumer.pollTimeoutMs", positive, POLL_TIMEOUT_MS),
        )
        reader.take("groupIdPrefix", text, None)
        reader.check_all_taken(KAFKA_PREFIX)
        options.check(is_stream=is_stream)
        if is_stream is not None:
            _check_kind(reader, is_stream=is_stream)
        return options

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are named; none with a pattern."""
        return self.subscribe or tuple(dict.fromkeys(topic for topic, _ in self.assigned))

    def check(self, *, is_stream: bool | None) -> None:
        """Raise a ConfigurationError if the options do not fit together."""
        ways = ("subscribe", "subscribePattern", "assign")
        given = [name for name, value in zip(ways, (self.subscribe, self.pattern, self.assigned), strict=True) if value]
        if len(given) != 1:
            also = f"; {' and '.join(given)} are given" if given else ""
            raise ConfigurationError(f"one of subscribe, subscribePattern and assign must say what to read{also}")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigurationError(
                f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}", option="minOffsetsPerTrigger"
            )
        self._check_names(self.starting_offsets.option("starting"), self.starting_offsets)
        self._check_names(self.ending_offsets.option("ending"), self.ending_offsets)
        if self.ending_offsets.word == "earliest":
            raise ConfigurationError("endingOffsets must be latest or JSON", option="endingOffsets")
        if place := _first_with(self.ending_offsets, EARLIEST):
            raise ConfigurationError(f"endingOffsets: {place}: -2, the earliest, is no end", option="endingOffsets")
        if is_stream is False:
            self._check_batch()

    def _check_names(self, name: str, choice: OffsetsChoice) -> None:
        if self.topics and (strangers := set(choice.offsets) - set(self.topics)):
            found, way = ", ".join(sorted(strangers)), "subscribe" if self.subscribe else "assign"
            raise ConfigurationError(f"{name} names topics that {way} does not: {found}", option=name)

    def _check_batch(self) -> None:
        if self.starting_offsets.word == "latest":
            raise ConfigurationError("startingOffsets=latest reads nothing in a batch", option="startingOffsets")
        if place := _first_with(self.starting_offsets, LATEST):
            raise ConfigurationError(
                f"startingOffsets: {place}: -1, the latest, is no start of a batch", option="startingOffsets"
            )


def _first_with(choice: OffsetsChoice, offset: int) -> str | None:
    """Return the first partition that JSON gives this offset; None if there is none."""
    if choice.word != "json":
        return None
    return next((f"{topic}-{number}" for (topic, number), given in choice.places().items() if given == offset), None)


def _check_kind(reader: OptionReader, *, is_stream: bool) -> None:
    """Refuse or log options that have no effect on a stream, or on a batch: each as Spark's own source does.

    Raises:
        ConfigurationError: one is refused.
    """
    of_groups = ["groupIdPrefix", f"{KAFKA_PREFIX}group.id", f"{KAFKA_PREFIX}group_id"]
    reader.warn(of_groups, "has no effect: the reader is in no consumer group")
    of_writes = [f"{KAFKA_PREFIX}{name}" for name in reader.take_prefixed(KAFKA_PREFIX) if is_of_producer(name)]
    reader.warn(of_writes, "has no effect: it is a property of writes")
    if is_stream:
        reader.refuse(["endingOffsets", "endingOffsetsByTimestamp"], "is for batch reads: a stream has no end")
        reader.warn(["endingTimestamp"], "has no effect on a stream, which has no end")
        return
    reader.refuse(["offsetGroup"], "is for streams: Spark reads a batch as a whole")
    of_streams = ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"]
    reader.warn(of_streams, "has no effect on a batch, which is read as a whole")


_CONNECTION: Final = ("security.protocol", "allow.plaintext.credentials", "proxy.url", "address.map", "allowed.brokers")
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.")


def is_of_connection(name: str) -> bool:
    """Whether a property of Kafka says how to connect, in either spelling: the same options as of a write."""
    dotted = kafka_name(name)
    return dotted in _CONNECTION or dotted.startswith(_CONNECTION_PREFIXES)


def is_of_producer(name: str) -> bool:
    """Whether a property is one of a write alone; jobs give the same options to a read and a write."""
    is_of_consumer = kafka_name(name) in _CONSUMER_ARGUMENTS or is_of_connection(name)
    return not is_of_consumer and python_name(name) in option_kinds()


def connection_config(properties: Mapping[str, str]) -> ProducerConfig:
    """Return what the properties of a read say about connections.

    Raises:
        ConfigurationError: they do not fit together, or aiokafka, which reads, cannot do one.
    """
    given = {name: value for name, value in properties.items() if is_of_connection(name)}
    try:
        always = {"bootstrap.servers": properties["bootstrap.servers"], "client.id": "aioproducer-spark"}
        config = ProducerConfig.from_kafka_properties(with_token_provider({**always, **given}))
        check_readable(config)
    except ConfigurationError as error:
        raise of_data_source(error, given) from None
    return config


_CONSUMER_ARGUMENTS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "bootstrap.servers": ("bootstrap_servers", text),
    "client.id": ("client_id", text),
    "fetch.min.bytes": ("fetch_min_bytes", positive),
    "fetch.max.bytes": ("fetch_max_bytes", positive),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", natural),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", positive),
    "request.timeout.ms": ("request_timeout_ms", positive),
    "retry.backoff.ms": ("retry_backoff_ms", natural),
    "metadata.max.age.ms": ("metadata_max_age_ms", positive),
    "connections.max.idle.ms": ("connections_max_idle_ms", positive),
    "check.crcs": ("check_crcs", boolean),
}
"""Kafka's property of a consumer -> the argument of aiokafka's, and what reads it."""


def source_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's properties of the consumers, checked, under Kafka's names.

    Raises:
        ConfigurationError: one is unknown, or not to be set here.
    """
    known = {*_CONSUMER_ARGUMENTS, *WITHOUT_EFFECT, *NOT_READABLE, *option_kinds()}
    named = in_kafkas_names(properties, known)
    for _ in consumer_arguments(named):
        pass
    if "bootstrap.servers" not in named:
        raise ConfigurationError("kafka.bootstrap.servers is missing", option="kafka.bootstrap.servers")
    connection_config(named)
    return named


def consumer_arguments(properties: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """Yield the arguments of aiokafka's consumer that Kafka's properties mean; raises as `source_properties`."""
    for name, value in properties.items():
        option = f"{KAFKA_PREFIX}{name}"
        if is_of_connection(name):
            continue
        if name in WITHOUT_EFFECT:
            continue
        if name in NOT_READABLE:
            raise ConfigurationError(f"{option} cannot be set: {NOT_READABLE[name]}", option=option)
        if is_of_producer(name):
            continue
        if name not in _CONSUMER_ARGUMENTS:
            near = get_close_matches(name, (*_CONSUMER_ARGUMENTS, *WITHOUT_EFFECT), n=3) or list(_CONSUMER_ARGUMENTS)
            listed = ", ".join(f"{KAFKA_PREFIX}{each}" for each in near)
            raise ConfigurationError(f"unknown option {option}; known are {listed}", option=option)
        argument, read = _CONSUMER_ARGUMENTS[name]
        try:
            yield argument, read(value)
        except ValueError as error:
            raise ConfigurationError(f"{option}={value!r}: must be {error}", option=option) from None
