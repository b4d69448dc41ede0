"""Bad inputs of a write in one table: what a person reads first is a text of this package, in Spark's spelling.

The functions that Spark calls are called here; `functions/test_first_words.py` has some of the inputs through Spark.
`pytest -s` prints the table.
"""

import importlib.util
import pickle
import re
import traceback
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

from aioproducer.config.producer_config import option_kinds
from aioproducer.errors import KafkaError
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._task import TaskSender
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from tests.spark.test_columns import WRONG as WRONG_COLUMNS
from tests.spark.test_columns import Column, Columns, Kind
from tests.spark.test_options import WRONG_WRITE
from tests.spark.test_task import WRONG_ROWS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")

WRONG_MODES = {"overwrite": 'mode("overwrite"): a topic cannot be overwritten'}
WRONG_TOPICS = {
    "topic that does not exist": (
        {"topic": "nowhere"},
        "topic 'nowhere' does not exist",
        "topic create nowhere --partitions N`",
    ),
    "topic of a decision that does not exist": (
        {"topic": "a", "exactlyOnce": "true", "sinkId": "s", "decisionTopic": "nowhere"},
        "decisionTopic 'nowhere' does not exist",
        "topic create nowhere --partitions N`",
    ),
    "illegal topic": ({"topic": "a b", "createTopic": "1:1"}, "createTopic: topic 'a b'", "INVALID_TOPIC"),
    "more replicas than brokers": (
        {"topic": "b", "createTopic": "1:3"},
        "createTopic: topic 'b'",
        "REPLICATION_FACTOR",
    ),
    "time-out over the brokers'": (
        {"topic": "a", "exactlyOnce": "true", "sinkId": "s", "transactionTimeout": "16m"},
        "transactionTimeout=960000ms: the brokers allow at most",
        "transaction.max.timeout.ms",
    ),
}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="canary";'
TLS = {"kafka.security.protocol": "SASL_SSL"}
OAUTH = {**TLS, "kafka.sasl.mechanism": "OAUTHBEARER"}
OF_KAFKA: dict[str, tuple[dict[str, str], str]] = {
    "acks": ({"kafka.acks": "2"}, "kafka.acks"),
    "codec": ({"kafka.compression.type": "brotli"}, "kafka.compression.type"),
    "flag": ({"kafka.enable.idempotence": "maybe"}, "kafka.enable.idempotence"),
    "buffer": ({"kafka.buffer.memory": "12"}, "kafka.buffer.memory"),
    "size": ({"kafka.max.request.size": "-1"}, "kafka.max.request.size"),
    "time": ({"kafka.request.timeout.ms": "1m"}, "kafka.request.timeout.ms"),
    "server without a port": ({"kafka.bootstrap.servers": "b1"}, "kafka.bootstrap.servers"),
    "server with a scheme": ({"kafka.bootstrap.servers": "kafka://b1:9092"}, "kafka.bootstrap.servers"),
    "in flight": (
        {"kafka.max.in.flight.requests.per.connection": "9"},
        "kafka.max.in.flight.requests.per.connection must be at most 5",
    ),
    "credentials without a protocol": ({"kafka.sasl.jaas.config": JAAS}, "kafka.security.protocol"),
    "protocol": ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
    "mechanism": ({**TLS, "kafka.sasl.mechanism": "MD5", "kafka.sasl.jaas.config": JAAS}, "kafka.sasl.mechanism"),
    "password in the clear": (
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": JAAS,
        },
        "kafka.allow.plaintext.credentials",
    ),
    "no password": ({**TLS, "kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl"),
    "truststore": ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore": "a"}, "kafka.ssl.truststore"),
    "tokens of nobody": (OAUTH, "kafka.sasl.token.provider"),
    "tokens of no module": ({**OAUTH, "kafka.sasl.token.provider": "no_such:T"}, "no_such cannot be imported"),
    "tokens of Java": ({**OAUTH, "kafka.sasl.token.provider": "a.b.Handler"}, "it is not like package.module:object"),
    "tokens without a region": ({**OAUTH, "kafka.sasl.token.provider": "MskIam"}, "required argument: 'region'"),
    "two wrong options": ({"kafka.acks": "2", "kafka.linger.ms": "soon"}, "2 options cannot be used"),
    "option of a read": ({"subscribe": "t"}, "unknown option subscribe"),
}
INPUTS = [
    *[("property", name) for name in OF_KAFKA],
    *[("option", name) for name in WRONG_WRITE],
    *[("column", name) for name in WRONG_COLUMNS],
    *[("mode", name) for name in WRONG_MODES],
    *[("topic", name) for name in WRONG_TOPICS],
    *[("row", name) for name in WRONG_ROWS],
    *[("row in a transaction", name) for name in WRONG_ROWS],
]
OPTIONS_OF_PYTHON = re.compile(rf"\b({'|'.join(name for name in option_kinds() if '_' in name)})\b")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"a": 1}, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes end with the variable; this one does not."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def written(options: Mapping[str, str], columns: Columns, *, overwrite: bool = False) -> None:
    """Do what Spark does on the driver before any task."""
    from aioproducer.spark._source import AioproducerDataSource  # noqa: PLC0415  # needs pyspark

    writer = AioproducerDataSource(dict(options)).writer(columns, overwrite)  # type: ignore[arg-type]  # stands in
    pickle.dumps(writer)


def sent(servers: str, name: str, transactional_id: str | None) -> None:
    """Do what a task does."""
    columns, options, _ = WRONG_ROWS[name]
    batch = pa.record_batch({"value": [b"", b""], **columns})
    given = {"kafka.bootstrap.servers": servers, **options, "exactlyOnce": "true", "sinkId": "s"}
    given |= {"decisionTopic": "a"} if "topic" in columns else {"topic": "a"}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset(batch.schema.names), has_seconds=False))
    sender.send_all(iter([batch]), task=7, transactional_id=transactional_id)


def attempt(servers: str, kind: str, name: str) -> tuple[Callable[[], None], str]:
    """Return what is done, and the words that are said."""
    if kind.startswith("row"):
        transactional_id = "s.0.7.0" if "transaction" in kind else None
        return lambda: sent(servers, name, transactional_id), WRONG_ROWS[name][2]
    fields: list[tuple[str, str]] = [("value", "binary")]
    options: Mapping[str, str] = {}
    match kind:
        case "option":
            options, said = WRONG_WRITE[name]
        case "property":
            options, said = OF_KAFKA[name]
        case "column":
            fields, said = WRONG_COLUMNS[name]
        case "topic":
            options, said, _ = WRONG_TOPICS[name]
        case _:
            said = WRONG_MODES[name]
    given = {"kafka.bootstrap.servers": servers, "topic": "a", **options}
    if "without a name" in name:
        del given["topic"]
    columns = Columns([Column(column, Kind(type_)) for column, type_ in fields])
    return lambda: written(given, columns, overwrite=kind == "mode"), said


@pytest.mark.parametrize("kind, name", INPUTS)
def test_first_words_about_a_bad_input_are_ours(cluster: ThreadedFakeCluster, kind: str, name: str) -> None:
    """Spark shows an exception's last lines, which are these, and nothing before them."""
    do, said = attempt(cluster.bootstrap_servers, kind, name)
    with pytest.raises((KafkaError, pickle.PickleError)) as caught:
        do()
    shown = "".join(traceback.format_exception_only(caught.value))
    print(f"| {kind}: {name} | {' '.join(shown.split())} |")
    assert re.match(r"aioproducer\.(errors|spark\._task)\.(Configuration(Type)?|Task|Broker)Error: ", shown), shown
    assert said in shown
    assert WRONG_TOPICS[name][2] in shown if kind == "topic" else True
    assert OPTIONS_OF_PYTHON.search(shown) is None, shown
    for word in ("Pickling", "Traceback", "None", "canary"):
        assert word not in shown


def test_table_of_bad_inputs_is_long() -> None:
    assert len(INPUTS) >= 90, len(INPUTS)
