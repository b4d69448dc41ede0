"""`aioproducer broker`: runs a cluster, embedded or real Apache Kafka, until Ctrl-C."""

import contextlib
import errno
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import anyio
import typer

from aioproducer.cli.process import EXIT_FAILED, discard, tell
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.testing.cluster_security import CA_FILE, CLIENT_FILE, LISTENERS, ClusterSecurity
from aioproducer.testing.fake_broker import MOST_PARTITIONS
from aioproducer.testing.kafka import BrokerStartError, KafkaCluster, MissingToolError
from aioproducer.testing.kafka.cache import require_kafka_prerequisites
from aioproducer.testing.kafka.server_properties import free_ports, is_free

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster

    Cluster: TypeAlias = FakeCluster | KafkaCluster

TOPIC_PATTERN = re.compile(r"(?!\.{1,2}(:|$))(?P<name>[A-Za-z0-9._-]{1,249})(:(?P<partitions>[0-9]{1,20}))?")
DEFAULT_PARTITIONS = 4
MAX_NODES = 9
LAST_PORT = 65_535

LISTENER, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"
PROPERTIES_FILE = "client.properties"
OWNER_ONLY = 0o600
WRITTEN_HERE = "# written by aioproducer broker --secure\n"


def broker(
    kafka: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Real Apache Kafka of this version, such as 4.4.0.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of brokers.")] = 1,
    port: Annotated[
        int,
        typer.Option(
            help="Port of the first broker; the others follow, and the secured listeners. 0 for any free ports."
        ),
    ] = 9092,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:PARTITIONS]", help="Create this topic; may be given again.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Also listen with TLS and SASL, and print a client.properties that fits.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With --secure: write client.properties and its certificates here."),
    ] = None,
) -> None:
    """Run a cluster on 127.0.0.1 until Ctrl-C: embedded, or real Apache Kafka. Topics are created on first use."""
    topics = _topics(topic or [])
    _check_folder(folder, is_secure=secure)
    if kafka is not None:
        _require_kafka(kafka)
    cluster = _cluster(kafka, _ports(nodes, port, is_secure=secure), topics, is_secure=secure)

    async def serve() -> None:
        tell(f"starting {_what(kafka, nodes)} ...")
        if kafka is None:
            await anyio.to_thread.run_sync(_load_message_classes)
        async with _running(cluster):
            if kafka is not None:
                await _make_topics(cluster.bootstrap_servers, topics, replicas=min(3, nodes))
            _say(_invitation(cluster.bootstrap_servers, next(iter(topics), "demo")))
            if secure:
                _say(write_client_properties(cluster, folder or cluster.security_folder))
            await anyio.sleep_forever()

    _run(serve)


def _require_kafka(version: str) -> None:
    """Refuse a version that cannot run here before anything starts."""
    try:
        require_kafka_prerequisites(version)
    except MissingToolError as missing:
        usage_error(missing.missing)
    except BrokerStartError as error:
        usage_error(str(error))


def _run(serve: Callable[[], Awaitable[None]]) -> None:
    """Serve until a signal; what stands in the way is one line."""
    try:
        run_until_signal(serve)
    except MissingToolError as missing:
        usage_error(missing.missing)
    except (BrokerStartError, OSError) as failed:
        usage_error(str(failed))
    except _UnreadError as unread:
        tell(f"aioproducer: standard output: {unread}")
        sys.exit(EXIT_FAILED)


class _UnreadError(Exception):
    """The address of the cluster cannot be printed; with the reason."""


def _say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError as error:
        discard(sys.stdout)
        raise _UnreadError(error.strerror or str(error)) from None


@contextlib.asynccontextmanager
async def _running(cluster: "Cluster") -> AsyncIterator[None]:
    """Start a cluster, and stop it after the block, also if the start was cancelled."""
    try:
        await cluster.start()
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await cluster.stop()


def _check_folder(folder: Path | None, *, is_secure: bool) -> None:
    """Refuse a folder that cannot be written to before anything starts."""
    if folder is None:
        return
    if not is_secure:
        usage_error("--folder is for --secure")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)
    except OSError as error:
        usage_error(f"--folder {folder}: {error.strerror}")


def _cluster(kafka: str | None, every: Sequence[int], topics: Mapping[str, int], *, is_secure: bool) -> "Cluster":
    nodes = len(every) // (1 + len(LISTENERS)) if is_secure else len(every)
    ports = every[:nodes]
    secured = {name: every[nodes * at : nodes * (at + 1)] for at, name in enumerate(LISTENERS, start=1)}
    security = ClusterSecurity(ports=secured) if is_secure else None
    if kafka is not None:
        return KafkaCluster(kafka, nodes=nodes, ports=ports, security=security)
    from aioproducer.testing import FakeCluster  # noqa: PLC0415 - not for real Kafka

    return FakeCluster(nodes, topics=dict(topics), ports=ports, security=security, num_partitions=DEFAULT_PARTITIONS)


def _load_message_classes() -> None:
    """Import modules that would block the brokers' event loop for half a second at the first transaction."""
    from aioproducer.testing.fake_broker.wire.messages import load_message_classes  # noqa: PLC0415 - not for real Kafka

    load_message_classes()


def _topics(arguments: Sequence[str]) -> dict[str, int]:
    """Return name and partition count of each `--topic`; an invalid one is a usage error."""
    topics: dict[str, int] = {}
    for argument in arguments:
        topic = TOPIC_PATTERN.fullmatch(argument)
        if topic is None:
            usage_error(f"--topic {argument!r}: not like NAME or NAME:PARTITIONS, such as orders:6")
        name, partitions = topic["name"], int(topic["partitions"] or DEFAULT_PARTITIONS)
        if not 1 <= partitions <= MOST_PARTITIONS:
            usage_error(f"--topic {argument!r}: a topic may have 1 to {MOST_PARTITIONS} partitions")
        if name in topics:
            usage_error(f"--topic {name!r} is given twice")
        topics[name] = partitions
    return topics


def _ports(nodes: int, first: int, *, is_secure: bool) -> list[int]:
    """Return the plaintext port of each node, then those of each secured listener; one in use is a usage error."""
    if not 1 <= nodes <= MAX_NODES:
        usage_error(f"--nodes {nodes}: must be 1 to {MAX_NODES}")
    count = nodes * (1 + len(LISTENERS)) if is_secure else nodes
    if not 0 <= first <= LAST_PORT - count + 1:
        usage_error(f"--port {first}: must be 0 to {LAST_PORT - count + 1}")
    if first == 0:
        return free_ports(count)
    ports = list(range(first, first + count))
    for port in ports:
        if not is_free(port):
            usage_error(
                f"port {port} on 127.0.0.1 is in use; choose others with --port, or any free ones with --port 0"
            )
    return ports


async def _make_topics(bootstrap_servers: str, topics: Mapping[str, int], *, replicas: int) -> None:
    """Create the topics on a real cluster; the embedded one gets them at its start."""
    if not topics:
        return
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # noqa: PLC0415 - takes half a second

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, count, replicas) for name, count in topics.items()])
    finally:
        await admin.close()
    for name, error_code, reason in answer.topic_errors:
        if error_code != 0:
            raise BrokerStartError(f"topic {name} could not be made: {reason} (error {error_code})")


def _what(kafka: str | None, nodes: int) -> str:
    brokers = "1 broker" if nodes == 1 else f"{nodes} brokers"
    return f"an embedded cluster of {brokers}" if kafka is None else f"Apache Kafka {kafka}, {brokers}"


def _invitation(bootstrap_servers: str, topic: str) -> str:
    """Return commands to paste into another terminal."""
    return (
        f"ready on {bootstrap_servers}\ntopics are made on first use; Ctrl-C ends it and its data\n\n"
        f"send a record:  echo hello | aioproducer produce {topic} -b {bootstrap_servers}\n"
        f"see it arrive:  aioproducer tail {topic} -b {bootstrap_servers} --from-beginning\n"
    )


# With --secure


def check_folder(folder: Path) -> None:
    """Refuse a folder whose files would be overwritten, unless they are of an earlier broker.

    Raises:
        FileExistsError: names the file.
    """
    properties = folder / PROPERTIES_FILE
    if properties.exists() and properties.read_text("utf-8", errors="replace").startswith(WRITTEN_HERE):
        return
    for name in (PROPERTIES_FILE, CA_FILE, CLIENT_FILE):
        if (folder / name).exists():
            raise FileExistsError(
                errno.EEXIST, f"{name} is there already, and was not written by aioproducer broker --secure"
            )


def write_client_properties(cluster: "Cluster", folder: Path) -> str:
    """Write the files to a folder, and return what to print."""
    for name in (CA_FILE, CLIENT_FILE):
        if folder != cluster.security_folder:
            _write(folder / name, (cluster.security_folder / name).read_text("utf-8"))
    properties = cluster.client_properties(LISTENER, MECHANISM)
    properties["ssl.truststore.location"] = str((folder / CA_FILE).resolve())
    text = WRITTEN_HERE + "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())
    path = folder / PROPERTIES_FILE
    _write(path, text)
    others = "".join(
        f"  {name:15} {cluster.client_properties(name, MECHANISM)['bootstrap.servers']}\n" for name in LISTENERS
    )
    return (
        f"{path}:\n{text}\nother listeners (certificate of a client: {folder / CLIENT_FILE}):\n{others}"
        f"users: alice/alice-secret, bob/bob-secret, with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512\n"
    )


def _escaped(value: str) -> str:
    """Return a value as property files have it: of ASCII, since Java reads other characters as ISO-8859-1."""
    return "".join(map(_escape_of, value))


def _escape_of(letter: str) -> str:
    if letter == "\\":
        return "\\\\"
    if letter.isascii() and letter.isprintable():
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()  # a surrogate stands for a byte of a path
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read: there are passwords and keys in it."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
        os.fchmod(file.fileno(), OWNER_ONLY)  # one that was there keeps its mode otherwise
        file.write(text)
