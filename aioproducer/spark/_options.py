"""Options of a write, and what reads options: checked as a whole on the driver, before any task.

Spark gives an option as text and its name in lower case. Each error is a ConfigurationError that names the option as
the documentation spells it, and what is allowed. No I/O.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeVar

from aioproducer._protocol.topic_admin_messages import OF_CLUSTER
from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import kafka_name, python_name, read_names, reason_against
from aioproducer.config._option_types import PARTITIONERS
from aioproducer.config._problems import raise_any, together
from aioproducer.config._token_texts import without_token_options
from aioproducer.config.producer_config import option_kinds
from aioproducer.errors import ConfigurationError
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.spark._decision_record import SinkIds
from aioproducer.spark._process_log import process_log
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._token_option import with_token_provider

ValueT = TypeVar("ValueT")

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "bootstrap_servers"
HEADER_PREFIX: Final = "header."
OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "triggerinterval"})
"""Options that Spark itself reads and passes on."""
_OF_TABLE: Final = "provider"
"""Option that Spark sets when it makes a table, and for nothing else."""

BATCH_SIZE: Final = 262_144
"""`kafka.batch.size` of a task's producer unless given: a task sends at once all it has."""
LINGER_MS: Final = 20
_DEFAULTS: Final = {"batch.size": str(BATCH_SIZE), "linger.ms": str(LINGER_MS)}
FIRST_ANSWER_TIMEOUT_S: Final = 10.0
"""How long the driver waits for any broker to answer, before any task."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
COMMIT_TIMEOUT_MS: Final = 300_000

NOT_SETTABLE: Final = {
    "key.serializer": "keys are the bytes, or the UTF-8, of the column",
    "value.serializer": "values are the bytes, or the UTF-8, of the column",
    "transactional.id": "give exactlyOnce=true and a sinkId",
    "transaction.timeout.ms": "give transactionTimeout",
    "interceptor.classes": "transform the DataFrame",
}
OF_COMMIT: Final = ("sinkId", "runId", "decisionTopic", "transactionTimeout", "commitTimeout")
"""Options without effect unless `exactlyOnce=true` is given."""

_DURATION = re.compile(r"(\d+) ?(ms|s|m|min|h|d)?", re.IGNORECASE)
_MS_IN: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


# Readers of values: a ValueError is raised for anything else, and its text is what is allowed


def boolean(text: str) -> bool:
    """Return what `true` or `false` says."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return text.lower() == "true"


def duration_ms(text: str) -> int:
    """Return milliseconds; `15m`, `900s` and `900000` are the same."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError("a time such as 15m, 30s or 500ms")
    return int(found[1]) * _MS_IN[(found[2] or "").lower()]


def positive(text: str) -> int:
    """Return a number of 1 or more."""
    if not text.strip().isdecimal() or int(text) == 0:
        raise ValueError("a whole number of 1 or more")
    return int(text)


def natural(text: str) -> int:
    """Return a number of 0 or more."""
    if not text.strip().isdecimal():
        raise ValueError("a whole number of 0 or more")
    return int(text)


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(" or ".join(allowed))
        return text.lower()

    return read


def text(given: str) -> str:
    """Return text that is not empty."""
    if not given:
        raise ValueError("text")
    return given


def is_utf8(given: str) -> bool:
    """Return whether a text can be written in UTF-8: one with half of a surrogate pair cannot."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def topic_shape(given: str) -> tuple[int, int]:
    """Return partitions and replicas from `3:1`, or from `3`: as many replicas as the cluster gives a topic."""
    partitions, colon, replicas = given.partition(":")
    try:
        return positive(partitions), positive(replicas) if colon else OF_CLUSTER
    except ValueError:
        raise ValueError("partitions:replicas, such as 3:1, or partitions alone") from None


class OptionReader:
    """Options as Spark gives them, taken one by one; what nothing took is an error.

    Args:
        given: name -> text; names in any case.

    Raises:
        ConfigurationError: a name or value is not text in UTF-8.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name, value in self._given.items():
            if not is_utf8(f"{name}{value}"):
                raise ConfigurationError(f"{ascii(name)[1:-1]}: must be text in UTF-8", option=name)
        self._known: dict[str, str] = {}

    def take(self, name: str, read: Callable[[str], ValueT], default: ValueT) -> ValueT:
        """Return the value of an option.

        Raises:
            ConfigurationError: it is not what `read` takes.
        """
        self._known[name.lower()] = name
        given = self._given.get(name.lower())
        if given is None:
            return default
        try:
            return read(given)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ConfigurationError(f"{name}={given!r}: must be {error}", option=name) from None

    def refuse(self, names: Collection[str], why: str) -> None:
        """Raise a ConfigurationError if one of these options is given, which would have no effect."""
        for name in names:
            if name.lower() in self._given:
                raise ConfigurationError(f"{name} {why}", option=name)

    def warn(self, names: Collection[str], why: str) -> None:
        """Log that options which are given have no effect, as Spark's own source does."""
        for name in names:
            if name.lower() in self._given:
                process_log().warning("%s %s", name, why)

    def apply_alias(self, alias: str, name: str) -> None:
        """Let an option be given under another name, too.

        Raises:
            ConfigurationError: it is given under both.
        """
        if (given := self._given.pop(alias.lower(), None)) is None:
            return
        if name.lower() in self._given:
            raise ConfigurationError(f"{alias} and {name} are the same option; give one", option=alias)
        self._given[name.lower()] = given

    def take_prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin so, without the prefix."""
        return {name[len(prefix) :]: value for name, value in self._given.items() if name.startswith(prefix)}

    def check_all_taken(self, *prefixes: str) -> None:
        """Raise a ConfigurationError with the nearest names if an option is not known."""
        if _OF_TABLE in self._given:
            raise ConfigurationError(
                "CREATE TABLE ... USING aioproducer: Spark gives the options of a table to no data source written in "
                "Python; CREATE TEMPORARY VIEW ... USING aioproducer OPTIONS (...) works"
            )
        for name in self._given:
            if name in self._known or name in OF_SPARK or name.startswith(prefixes):
                continue
            near = [self._known[each] for each in get_close_matches(name, self._known, n=3)]
            near += [f"{KAFKA_PREFIX}{each}" for each in _of_kafka(name)]
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; known are {', '.join(self._known.values())}"
            raise ConfigurationError(f"unknown option {name}{hint}", option=name)


def _of_kafka(name: str) -> list[str]:
    """Return the property of Kafka that a name without the prefix is, or almost is."""
    spelled = python_name(name)
    if reason_against(spelled) is not None:  # of consumers, or of another client: the error of the prefixed one says so
        return [name] if "." in name else []
    return [kafka_name(each) for each in get_close_matches(spelled, (BOOTSTRAP, *option_kinds()), n=1, cutoff=0.8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a write; the fields have their names, which are in camel case there."""

    kafka: Mapping[str, str] = field(repr=False)  # may hold passwords
    """Kafka's properties: checked, with the defaults of a task's producer."""
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    run_id: str | None
    batch_id: int | None
    """Given by `foreach_batch`; otherwise Spark's own is used."""
    decision_topic: str | None
    transaction_timeout_ms: int
    commit_timeout_ms: int
    headers: tuple[tuple[str, bytes], ...]
    ignores_extra_columns: bool
    max_records_per_second: int | None
    skips_oversize: bool
    report: str | None
    topic_shape: tuple[int, int] | None = None
    """Partitions and replicas of the topic, which is created if it does not exist."""
    input: RowShape | None = None
    """Columns of the row groups that the rows name, which the tasks of `aioproducer load` read."""

    @classmethod
    @clears_frames
    def parse(cls, given: Mapping[str, str]) -> "SinkOptions":
        """Return the options of a write.

        Args:
            given: by Spark or the command.

        Raises:
            ConfigurationError: an option is unknown, wrong, or missing beside another.
        """
        reader = OptionReader(given)
        options = cls(
            kafka=sink_properties(reader.take_prefixed(KAFKA_PREFIX)),
            topic=reader.take("topic", text, None),
            exactly_once=reader.take("exactlyOnce", boolean, default=False),
            sink_id=reader.take("sinkId", text, None),
            run_id=reader.take("runId", text, None),
            batch_id=reader.take("batchId", natural, None),
            decision_topic=reader.take("decisionTopic", text, None),
            transaction_timeout_ms=reader.take("transactionTimeout", duration_ms, TRANSACTION_TIMEOUT_MS),
            commit_timeout_ms=reader.take("commitTimeout", duration_ms, COMMIT_TIMEOUT_MS),
            headers=tuple((name, value.encode()) for name, value in reader.take_prefixed(HEADER_PREFIX).items()),
            ignores_extra_columns=reader.take("extraColumns", one_of("error", "ignore"), "error") == "ignore",
            max_records_per_second=reader.take("maxRecordsPerSecond", positive, None),
            skips_oversize=reader.take("onOversize", one_of("fail", "skip"), "fail") == "skip",
            report=reader.take("report", text, None),
            topic_shape=reader.take("createTopic", topic_shape, None),
            input=row_shape(reader),
        )
        reader.take("includeHeaders", boolean, default=False)  # Spark's sink accepts it too; the column decides
        reader.check_all_taken(KAFKA_PREFIX, HEADER_PREFIX)
        options.check()
        if not options.exactly_once:
            reader.refuse(OF_COMMIT, "is for exactlyOnce=true, which is not given")
        return options

    def check_of_stream(self) -> None:
        """Raise a ConfigurationError if an option has no effect on the batches of a stream."""
        if self.run_id is not None:
            raise ConfigurationError("runId is for batch jobs: the batches of a stream have numbers", option="runId")
        if self.batch_id is not None:
            # Another number than Spark's would have rows skipped as those of a batch that is decided.
            raise ConfigurationError(
                "batchId cannot be set: Spark numbers the batches of a stream, and foreach_batch gives the number",
                option="batchId",
            )

    def check(self) -> None:
        """Raise a ConfigurationError if the options do not fit together."""
        if self.exactly_once and self.sink_id is None:
            raise ConfigurationError(
                "exactlyOnce=true needs sinkId: a name for this sink that stays the same over restarts and is used "
                "by one query at a time",
                option="sinkId",
            )
        if self.sink_id is not None:
            SinkIds(self.sink_id)
        if self.batch_id is not None and self.run_id is not None:
            raise ConfigurationError("runId is for batch jobs: the batches of a stream have numbers", option="runId")
        if self.topic_shape is not None and self.topic is None:
            raise ConfigurationError(
                "createTopic is for the option topic, which is not given: topics of a column are not created",
                option="createTopic",
            )
        if any(not name for name, _ in self.headers):
            raise ConfigurationError("header.: must be header.<name>", option="header.")
        if self.exactly_once:
            self._check_transactional()

    def _check_transactional(self) -> None:
        """Raise a ConfigurationError if the producer has no transactions with these properties, as `kafka.acks=1`."""
        try:
            self.producer_config("any")
        except ConfigurationError as error:
            if error.option == "transaction_timeout_ms":
                text = in_kafkas_spelling(str(error)).removeprefix("kafka.transaction.timeout.ms ")
                raise ConfigurationError(f"transactionTimeout: {text}", option="transactionTimeout") from None
            against = [name for name, fits in _AGAINST_TRANSACTIONS.items() if not fits(self.kafka.get(name))]
            if not against:
                raise of_data_source(error, self.kafka) from None
            given = " and ".join(f"{KAFKA_PREFIX}{name}={self.kafka[name]}" for name in against)
            raise ConfigurationError(
                f"{given} cannot be had with exactlyOnce=true: it needs kafka.enable.idempotence=true, and so "
                "kafka.acks=all and kafka.retries above 0",
                option=f"{KAFKA_PREFIX}{against[0]}",
            ) from None

    def task_properties(self, transactional_id: str | None = None) -> dict[str, str]:
        """Return Kafka's properties of a task's producer; with an id, of one that has a transaction."""
        if transactional_id is None:
            return dict(self.kafka)
        timeout = str(self.transaction_timeout_ms)
        return {**self.kafka, "transactional.id": transactional_id, "transaction.timeout.ms": timeout}

    def producer_config(self, transactional_id: str | None = None) -> ProducerConfig:
        """Return the configuration of a task's producer; with an id, of one that has a transaction."""
        return ProducerConfig.from_kafka_properties(with_token_provider(self.task_properties(transactional_id)))

    @property
    def topic_of_decision(self) -> str:
        """Topic whose group offsets keep the decision.

        Raises:
            ConfigurationError: topics come from a column, and no decisionTopic is given.
        """
        topic = self.decision_topic or self.topic
        if topic is None:
            raise ConfigurationError(
                "exactlyOnce=true with topics from a column needs decisionTopic: an existing topic, one of those or "
                "another, whose group offsets keep the decision",
                option="decisionTopic",
            )
        return topic


_AGAINST_TRANSACTIONS: Final[Mapping[str, Callable[[str | None], bool]]] = {
    "acks": lambda given: given in {None, "all", "-1"},
    "enable.idempotence": lambda given: given != "false",
    "retries": lambda given: given != "0",
}
"""Kafka's properties that may forbid a transaction -> whether a value does not."""


def row_shape(reader: OptionReader) -> RowShape | None:
    """Return what `input=splits` reads from files; None for rows of the DataFrame."""
    is_splits = reader.take("input", one_of("rows", "splits"), "rows") == "splits"
    shape = RowShape(reader.take("inputKey", text, None), reader.take("inputValue", text, None))
    return shape if is_splits else None


def in_kafkas_names(properties: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return Kafka's properties under its own names: `batch_size` is `batch.size`.

    What looks at a property by its name then finds it in either spelling. A name that is not known stays as it was
    given, so that the error about it names it so.

    Args:
        known: names, in either spelling.

    Raises:
        ConfigurationError: one is given in both spellings.
    """
    spelled = {python_name(name) for name in known}
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for given, value in properties.items():
        name = python_name(given)
        if name not in spelled:
            found[given] = value
            continue
        if name in first:
            option = f"{KAFKA_PREFIX}{kafka_name(name)}"
            text = f"{option} is given twice, as {KAFKA_PREFIX}{first[name]} and {KAFKA_PREFIX}{given}"
            raise ConfigurationError(text, option=option)
        first[name] = given
        found[kafka_name(given)] = value
    return found


def sink_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's properties of a task's producer, checked, under Kafka's names.

    Raises:
        ConfigurationError: the producer refuses some, or one is not to be set here.
    """
    known = {BOOTSTRAP, *option_kinds()}
    named = in_kafkas_names(properties, {*known, *NOT_SETTABLE})
    instead = {python_name(name): text for name, text in NOT_SETTABLE.items()}
    for name, value in named.items():
        if (text := instead.get(python_name(name))) is not None:
            raise ConfigurationError(f"kafka.{name} cannot be set: {text}", option=f"kafka.{name}")
        if python_name(name) == "partitioner" and value.strip() not in PARTITIONERS:
            raise ConfigurationError(
                f"kafka.{name}={value!r}: classes of Java do not run here, but for "
                f"{', '.join(filter(None, PARTITIONERS))}; put the numbers of partitions into the column partition",
                option=f"kafka.{name}",
            )
    complete = {**named, **{name: value for name, value in _DEFAULTS.items() if name not in named}}
    try:
        _check_producer(with_token_provider(complete), known)
    except ConfigurationError as error:
        raise of_data_source(error, complete) from None
    return complete


def _check_producer(properties: Mapping[str, object], known: Collection[str]) -> None:
    """Raise a ConfigurationError with all that a producer refuses; what a file may have is refused here."""
    left, _ = without_token_options(properties)  # of Java's clients, whose place a token provider takes
    problems = read_names(left, known, is_shared=False).problems
    try:
        ProducerConfig.from_kafka_properties(properties)
    except ConfigurationError as error:
        told = {problem.option for problem in problems}
        problems += [each for each in error.problems or (error,) if each.option is None or each.option not in told]
    raise_any(problems)


def of_data_source(error: ConfigurationError, properties: Mapping[str, str]) -> ConfigurationError:
    """Return an error of the producer's configuration with the names that options have here."""
    if error.problems:
        return together([of_data_source(each, properties) for each in error.problems])
    text = in_kafkas_spelling(str(error))
    if error.option is None:
        return ConfigurationError(text)
    if error.option == "sasl_token_provider" and not any(python_name(name) == error.option for name in properties):
        text = (
            f"{KAFKA_PREFIX}sasl.token.provider is missing: OAUTHBEARER needs the name of what makes the tokens, such "
            "as 'MskIam region=eu-central-1' or module:object"
        )
    given = next((name for name in properties if python_name(name) == error.option), kafka_name(error.option))
    option = f"{KAFKA_PREFIX}{given}"
    if text.startswith(f"{given} "):  # a name of one word
        text = f"{KAFKA_PREFIX}{text}"
    return ConfigurationError(text if text.startswith(option) else f"{option}: {text}", option=option)


def in_kafkas_spelling(text: str, *, besides: str = "") -> str:
    """Return a text with `kafka.linger.ms` for `linger_ms`.

    Names of one word are words of the text too, and stay, as do arguments of a Python call: `client_id=...`.

    Args:
        besides: a name that stays where it stands alone, though it may be that of an option: the one of a topic.
    """
    names = sorted((name for name in option_kinds() if "_" in name), key=len, reverse=True)
    pattern = "|".join(name.replace("_", "[._]") for name in (*names, BOOTSTRAP))
    kept = rf"(?<![\w.-])'?{re.escape(besides)}'?(?![\w-]|[.]\w)" if besides else r"(?!)"
    in_text = rf"{kept}|(?<![\w.])'?({pattern})\b(?![.]\w|=(?:[.]|,|[A-Z]\w*\())'?"
    text = re.sub(r": pass ssl_context=.*", ": an option is text here, and no other has its place", text)
    spelled = re.sub(in_text, lambda found: KAFKA_PREFIX + kafka_name(found[1]) if found[1] else found[0], text)
    return re.sub(r"(?<==)(True|False)\b", lambda found: found[1].lower(), spelled)


def in_sparks_words(error: Exception, *, topic: str = "") -> str:
    """Return the text of a producer's error about a topic with the options and values of a write: null for None."""
    text = in_kafkas_spelling(str(error), besides=topic)
    text = text.replace(f"{KAFKA_PREFIX}transaction.timeout.ms", "transactionTimeout")
    return re.sub(r"(?<![\w'.-])None(Type)?(?![\w'.-])", "null", text)
