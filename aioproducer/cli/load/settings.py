"""Settings of `aioproducer load`, checked before anything is read or sent. Imports neither pyarrow nor pyspark."""

import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aioproducer.config._option_names import python_name
from aioproducer.config._problems import together
from aioproducer.errors import ConfigurationError
from aioproducer.records import check_topic_name
from aioproducer.spark._options import KAFKA_PREFIX, SinkOptions, is_utf8
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._write_choice import RUN_PREFIX

DEFAULT_VALUE = "value"
PARQUET = "parquet"
OWN_PROPERTIES: Mapping[str, str] = {
    "bootstrap.servers": "--bootstrap-server",
    "transactional.id": "--exactly-once and --sink",
}
DEFAULT_PROPERTIES: Mapping[str, str] = {"client.id": "aioproducer-load"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """Arguments of the command, as they were given."""

    paths: Sequence[str]
    topic: str
    bootstrap_server: str
    file_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_provider: str | None = field(default=None, repr=False)
    """Names it, with its arguments."""
    key: str | None
    value: str | None
    is_json: bool
    format: str
    master: str | None
    conf: Sequence[str]
    tasks: int | None
    sql: str | None
    properties: Sequence[str]
    exactly_once: bool
    sink: str | None
    run_id: str | None
    rate: float | None
    dry_run: bool
    report: str | None
    inspect: int | None = None
    unnamed_run: str = field(default_factory=lambda: str(uuid.uuid4()))
    """`runId` of a load that was given none: with it the command finds the decision of its own run."""

    @property
    def query(self) -> str:
        """Name of the run in the decision of its sink."""
        return f"{RUN_PREFIX}{self.run_id or self.unnamed_run}"

    @property
    def shape(self) -> RowShape:
        """Columns that become the records."""
        return RowShape(self.key, None if self.is_json else self.value or DEFAULT_VALUE)

    @property
    def reads_row_groups(self) -> bool:
        """Whether pyarrow reads the files, and not Spark."""
        return self.format == PARQUET and self.sql is None

    def problems(self) -> Iterator[str]:
        """Yield a line for each argument that is wrong or contradicts another."""
        if unreadable := list(self._unreadable()):
            yield from unreadable
            return
        try:
            check_topic_name(self.topic)
        except ValueError as error:
            yield str(error)
        if self.value is not None and self.is_json:
            yield "--value and --json exclude each other: --json makes the value from all columns"
        if not self.paths and self.sql is None:
            yield "no PATH is given"
        if self.rate is not None and not 1 <= self.rate < math.inf:
            yield f"--rate {self.rate:g}: must be 1 or more"
        if self.inspect is not None and self.master is not None:
            yield "--inspect is for loads without --master: Spark has a page of its own"
        if self.inspect is not None and self.dry_run:
            yield "--inspect and --dry-run exclude each other: nothing is sent"
        yield from self._without_spark()
        yield from self._without_commit()

    def _unreadable(self) -> Iterator[str]:
        """Yield a line for each argument that is not UTF-8, which neither Arrow nor Kafka takes."""
        named = {"--topic": self.topic, "--key": self.key, "--value": self.value, "--format": self.format}
        named |= {"--master": self.master, "--sql": self.sql, "--sink": self.sink, "--run-id": self.run_id}
        named["--bootstrap-server"] = self.bootstrap_server
        properties = [each.partition("=") for each in self.properties]
        shown = [("PATH", path) for path in self.paths] + [(name, text) for name, text in named.items() if text]
        shown += [("--conf", each) for each in self.conf] + [("--property", name) for name, *_ in properties]
        yield from (f"{name} {os.fsencode(text)!r}: not UTF-8" for name, text in shown if not is_utf8(text))
        secret = [(f"--property {name}", value) for name, _, value in properties if is_utf8(name)]
        secret += [("--token-provider", self.token_provider or "")]
        yield from (f"{name}: its value is not UTF-8" for name, text in secret if not is_utf8(text))

    def _without_spark(self) -> Iterator[str]:
        if self.master is not None:
            return
        for name, given in (("--conf", self.conf), ("--tasks", self.tasks), ("--sql", self.sql)):
            if given:
                yield f"{name} needs --master: it is for Spark"
        if self.format != PARQUET:
            yield f"--format {self.format} needs --master, such as --master 'local[*]': Spark reads it"

    def _without_commit(self) -> Iterator[str]:
        if self.exactly_once and self.sink is None:
            yield "--exactly-once needs --sink ID: a name for this load that stays the same when it is run again"
        for name, text in (("--sink", self.sink), ("--run-id", self.run_id)):
            if text is not None and not self.exactly_once:
                yield f"{name} needs --exactly-once"

    def pairs_of_conf(self) -> dict[str, str]:
        """Return Spark's settings.

        Raises:
            ConfigurationError: one is not like NAME=VALUE.
        """
        return dict(_pair("--conf", each) for each in self.conf)

    def sink_options(self, tasks: int) -> dict[str, str]:
        """Return the options of the data source.

        Args:
            tasks: that share the rate.

        Raises:
            ConfigurationError: a property is not like NAME=VALUE, or has an option of its own.
        """
        own = {python_name(name): instead for name, instead in OWN_PROPERTIES.items()}
        given = dict(_pair("--property", each) for each in self.properties)
        for name in given:
            if (instead := own.get(python_name(name))) is not None:
                raise ConfigurationError(f"--property {name}: use {instead}")
        properties = _replaced(_replaced(DEFAULT_PROPERTIES, self.file_properties), given)
        properties["bootstrap.servers"] = self.bootstrap_server
        if self.token_provider is not None:
            properties = _replaced(properties, {"sasl.token.provider": self.token_provider})
        options = {f"{KAFKA_PREFIX}{name}": value for name, value in properties.items()}
        options["topic"] = self.topic
        if self.exactly_once:
            run = self.unnamed_run if self.run_id is None else self.run_id
            options |= {"exactlyOnce": "true", "sinkId": self.sink or "", "runId": run}
        if self.rate is not None:
            options["maxRecordsPerSecond"] = str(max(1, int(self.rate / tasks)))
        if self.reads_row_groups:
            options |= {"input": "splits"}
            options |= {} if self.shape.key is None else {"inputKey": self.shape.key}
            options |= {} if self.shape.value is None else {"inputValue": self.shape.value}
        return options

    def parsed_options(self, tasks: int = 1) -> SinkOptions:
        """Return the same, checked.

        Raises:
            ConfigurationError: options are wrong; of a property, `option` is its name in Python's spelling.
        """
        try:
            return SinkOptions.parse(self.sink_options(tasks))
        except ConfigurationError as error:
            raise together([_of_command(each) for each in error.problems or (error,)]) from None


def _of_command(error: ConfigurationError) -> ConfigurationError:
    """Return an error of the data source, whose options are `kafka.linger.ms`, about `--property linger.ms`."""
    # A value follows a quote, `=` or another part of it.
    text = re.sub(r"(?<![\w.'\"=,/@-])kafka\.", "", str(error))
    return ConfigurationError(text, option=error.option and python_name(error.option.removeprefix(KAFKA_PREFIX)))


def _replaced(properties: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Return properties with others in the place of those that are given again, in either spelling."""
    names = {python_name(name) for name in by}
    return {**{name: value for name, value in properties.items() if python_name(name) not in names}, **by}


def _pair(option: str, argument: str) -> tuple[str, str]:
    name, equals, value = argument.partition("=")
    if not (name and equals):
        raise ConfigurationError(f"{option} {argument!r}: not like NAME=VALUE")
    return name, value
