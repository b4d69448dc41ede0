"""`aioproducer broker` runs until it is told to stop, and says in one line why it cannot."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer.cli.broker import check_folder
from aioproducer.config._properties_file import read_properties
from aioproducer.testing.cluster_security import LISTENERS
from aioproducer.testing.kafka.broker_requests import ask_for_cluster
from aioproducer.testing.kafka.server_properties import free_ports, is_free

pytestmark = pytest.mark.timing

COMMAND = [sys.executable, "-c", "from aioproducer.cli.main import app; app()", "broker"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """The command once it is ready, and the ports it says it listens on."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            yield process, [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", ready)]
        finally:
            process.kill()


def rest_of(process: "subprocess.Popen[str]") -> tuple[str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.read(), process.stderr.read()
    process.wait(10)
    return said


def refused(*arguments: str, path: str | None = None) -> tuple[int, list[str]]:
    environment = None if path is None else {"PATH": path}
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, env=environment)
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bs\\n", "gr\u00fcn \U0001f600", " a=b:c#d!"], ids=ascii)
def test_path_of_any_characters_is_escaped_in_the_file(tmp_path: Path, name: str) -> None:
    """As Java reads it: a backslash begins an escape, other characters than ASCII are ISO-8859-1."""
    folder = tmp_path / name
    with running("--port", "0", "--secure", "--folder", str(folder)) as (process, _):
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("users: "))
        content = (folder / "client.properties").read_bytes()
        found = read_properties(folder / "client.properties")

    assert content.isascii()
    assert found["ssl.truststore.location"].value == str(folder / "ca.pem")
    assert Path(found["ssl.truststore.location"].value).exists()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_embedded_cluster_runs_until_told_to_stop(end: signal.Signals) -> None:
    with running("--nodes", "2", "--port", "0", "--topic", "orders:6") as (process, ports):
        view = await ask_for_cluster("127.0.0.1", ports[0])

        process.send_signal(end)
        rest, errors = rest_of(process)

    assert view is not None
    assert view.brokers == 2
    assert (process.returncode, errors) == (0, "starting an embedded cluster of 2 brokers ...\n")
    assert all(is_free(port) for port in ports)
    assert f"produce orders -b 127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}\n" in rest
    assert f"aioproducer tail orders -b 127.0.0.1:{ports[0]}" in rest


@pytest.mark.slow
def test_what_takes_long_to_import_is_there_before_it_is_ready(tmp_path: Path) -> None:
    """Later it would be imported on the event loop, and every client would wait meanwhile."""
    program = [sys.executable, "-X", "importtime", *COMMAND[1:], "--port", "0"]
    with (
        (tmp_path / "imported").open("w") as imported,
        subprocess.Popen(program, stdout=subprocess.PIPE, stderr=imported, text=True) as process,
    ):
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.kill()

    assert ready.startswith("ready on ")
    assert "kio.schema.find_coordinator" in (tmp_path / "imported").read_text()


@pytest.mark.slow
def test_printed_line_sends_a_record() -> None:
    with running("--port", "0") as (process, _):
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        command = lines[2].partition("aioproducer ")[2].split()

        sent = subprocess.run(
            [sys.executable, "-m", "aioproducer", *command],
            input="hello\n",
            capture_output=True,
            text=True,
            check=False,
        )

    assert lines[2].startswith("send a record:  echo hello | aioproducer produce ")
    assert (sent.returncode, sent.stderr.count("1 record")) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kafka", [[], pytest.param(["--kafka", "4.4.0"], marks=pytest.mark.kafka)], ids=["embedded", "real"]
)
async def test_secure_broker_writes_properties_that_connect_a_producer(kafka: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with running("--port", "0", "--secure", "--folder", str(folder), *kafka) as (process, _):
        assert process.stdout is not None
        printed = list(iter(process.stdout.readline, f"{folder}/client.properties:\n"))
        text = "".join(iter(process.stdout.readline, "\n"))

        async with Producer(ProducerConfig.from_properties_file(folder / "client.properties")) as producer:
            sent = await producer.send_and_wait("orders", b"x")

    assert any("aioproducer tail" in line for line in printed)
    assert text == (folder / "client.properties").read_text("utf-8")
    assert "security.protocol=SASL_SSL\n" in text
    assert sent.offset == 0
    assert sorted(path.name for path in folder.iterdir()) == ["ca.pem", "client.pem", "client.properties"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    check_folder(folder)  # the next one may write there again


@pytest.mark.slow
@pytest.mark.parametrize(
    "kafka", [[], pytest.param(["--kafka", "4.4.0"], marks=pytest.mark.kafka)], ids=["embedded", "real"]
)
def test_secured_listeners_have_the_same_ports_at_each_start(kafka: list[str], tmp_path: Path) -> None:
    """So the `client.properties` of an earlier start still has the right address."""
    first = first_of_free_ports(1 + len(LISTENERS))
    written, addresses = [], []
    for _ in range(2):
        with running("--port", str(first), "--secure", "--folder", str(tmp_path), *kafka) as (process, _):
            assert process.stdout is not None
            head = f"other listeners (certificate of a client: {tmp_path}/client.pem):\n"
            assert list(iter(process.stdout.readline, head))
            addresses.append([process.stdout.readline().split() for _ in LISTENERS])
            process.send_signal(signal.SIGINT)
            rest_of(process)
        written.append((tmp_path / "client.properties").read_text("utf-8"))

    expected = [[name, f"localhost:{first + at}"] for at, name in enumerate(LISTENERS, start=1)]
    assert addresses == [expected, expected]
    assert written[0] == written[1]


def first_of_free_ports(count: int) -> int:
    """The first of some ports in a row on which nothing listens."""
    return next(first for first in free_ports(100) if all(is_free(port) for port in range(first, first + count)))


@pytest.mark.parametrize("name", ["client.properties", "ca.pem", "client.pem"])
def test_secure_broker_overwrites_no_file_of_the_user(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine", "utf-8")

    code, lines = refused("--secure", "--folder", str(tmp_path))

    assert code == 2
    assert name in lines[0]
    assert "is there already" in lines[0]
    assert (tmp_path / name).read_text("utf-8") == "mine"


def test_busy_port_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        code, lines = refused("--port", str(port))

    assert code == 2
    assert lines == [
        f"aioproducer: port {port} on 127.0.0.1 is in use; choose others with --port, or any free ones with --port 0"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, names",
    [
        (["--topic", "orders:0"], "'orders:0': a topic may have 1 to 999999 partitions"),
        (["--topic", "orders:99999999"], "'orders:99999999': a topic may have 1 to 999999 partitions"),
        (["--topic", "orders", "--topic", "orders:3"], "--topic 'orders' is given twice"),
        (["--topic", "a b"], "'a b'"),
        (["--topic", ".."], "'..'"),
        (["--nodes", "0"], "--nodes 0"),
        (["--port", "65536"], "--port 65536"),
        (["--folder", "x"], "--folder is for --secure"),
        (["--secure", "--folder", "/dev/null/x"], "--folder /dev/null/x: Not a directory"),
        (["--kafka", "four", "--port", "0"], "'four'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_argument_is_one_line(arguments: list[str], names: str) -> None:
    code, lines = refused(*arguments)

    assert code == 2
    assert len(lines) == 1
    assert names in lines[0]


@pytest.mark.slow
def test_missing_java_is_one_line() -> None:
    code, lines = refused("--kafka", "4.3.0", "--port", "0", path="/nonexistent")

    assert code == 2
    assert [line.partition(":")[2].split(" is ")[0] for line in lines] == [" Java 17", " Maven"]


@pytest.mark.kafka
@pytest.mark.slow
async def test_real_kafka_is_gone_after_sigterm() -> None:
    with running("--kafka", "4.4.0", "--port", "0", "--topic", "orders:6") as (process, ports):
        view = await ask_for_cluster("127.0.0.1", ports[0])

        process.send_signal(signal.SIGTERM)
        rest_of(process)

    assert view is not None
    assert process.returncode == 0
    assert is_free(ports[0])
