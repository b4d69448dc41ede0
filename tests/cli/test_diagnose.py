"""`aioproducer diagnose`: each wrong set-up fails at its step, with what to do; a right one passes."""

import asyncio
import json
import signal
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from aioproducer.cli.broker_check import BrokerCheck, PresentedCertificate, Step
from aioproducer.cli.diagnose import Printed
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig
from aioproducer.testing import FakeCluster
from tests.cli.commands import ended, run, started
from tests.fakes.proxies import hostile_proxy, working_proxy
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.wrong_servers import HTTP_ANSWER, TLS_ALERT, dead_port, server_that_says


async def steps_of(place: str, options: Mapping[str, str] | None = None, *, node_id: int = -1) -> list[Step]:
    config = ProducerConfig.from_kafka_properties({"bootstrap.servers": place, **(options or {})})
    ((host, port),) = config.bootstrap
    return [step async for step in BrokerCheck(config, Node(node_id, host, port), 0.5).steps()]


def names(steps: list[Step]) -> str:
    return " ".join(step.name if step.is_ok else f"{step.name}!" for step in steps)


async def test_right_set_up_passes_every_step(one_broker: FakeCluster) -> None:
    port = one_broker.bootstrap_servers.rpartition(":")[2]
    steps = await steps_of(f"localhost:{port}")

    assert names(steps) == "name tcp versions metadata"
    assert steps[-1].text == f"cluster aioproducer-fake-cluster, brokers 1 at 127.0.0.1:{port}"


async def test_map_and_proxy_are_steps(one_broker: FakeCluster) -> None:
    async with working_proxy(credentials="u:canary-p") as proxy:
        options = {
            "address.map": f"kafka.invalid:9092={one_broker.bootstrap_servers}",
            "proxy.url": f"socks5h://u:canary-p@127.0.0.1:{proxy.port}",
        }
        steps = await steps_of("kafka.invalid:9092", options)

    assert names(steps) == "route tcp proxy versions metadata"
    assert steps[0].text == f"mapped to {one_broker.bootstrap_servers}"
    assert steps[2].text == f"socks5h://u:<hidden>@127.0.0.1:{proxy.port} connects to {one_broker.bootstrap_servers}"


@pytest.mark.parametrize(
    "options, step, text, remedy",
    [
        ({}, "name!", "kafka.invalid cannot be resolved: ", "the cluster advertises this address"),
        ({"allowed.brokers": "kafka-*"}, "route!", "none of allowed_brokers: kafka-*", ""),
        ({"proxy.url": "http://p.invalid:1"}, "name!", "p.invalid cannot be resolved", "look at the host of proxy_url"),
    ],
)
async def test_advertised_broker_that_cannot_be_reached_is_explained(
    options: Mapping[str, str], *, step: str, text: str, remedy: str
) -> None:
    steps = await steps_of("kafka.invalid:9092", options, node_id=2)

    assert names(steps) == step
    assert steps[-1].broker == "broker 2 at kafka.invalid:9092"
    assert text in steps[-1].text
    assert remedy in steps[-1].remedy


@pytest.mark.parametrize(
    "node_id, mapped, remedy",
    [
        (-1, False, "nothing listens there: is the broker up, and is this its port?"),
        (2, False, "the cluster advertises this very machine"),
        (2, True, "This is where address_map leads"),
    ],
)
async def test_refused_connection_is_explained(node_id: int, remedy: str, *, mapped: bool) -> None:
    async with dead_port() as place:
        options = {"address.map": f"kafka.invalid:9092={place}"} if mapped else {}
        steps = await steps_of("kafka.invalid:9092" if mapped else place, options, node_id=node_id)

    assert names(steps) == ("route tcp!" if mapped else "tcp!")
    assert steps[-1].text == "127.0.0.1: Connection refused"
    assert remedy in steps[-1].remedy


async def test_one_dead_address_of_two_is_a_warning() -> None:
    """It costs each new connection a quarter of a second."""

    async def getaddrinfo(_: str, port: int, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.2", "127.0.0.1")]

    loop = asyncio.get_running_loop()
    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as applications do
    server = await loop.create_server(lambda: ScriptedBroker(hang_up), "127.0.0.1", 0)
    steps = await steps_of(f"seed:{server.sockets[0].getsockname()[1]}")
    server.close()

    assert names(steps[:2]) == "name tcp"
    assert steps[1].text == "127.0.0.2: Connection refused; 127.0.0.1: connected"
    assert "nothing listens there" in steps[1].remedy


@pytest.mark.parametrize(
    "answer, text", [(HTTP_ANSWER, "too large"), (TLS_ALERT, "TLS"), (b"", "no Kafka broker has answered")]
)
async def test_stranger_on_the_port_fails_at_the_versions(answer: bytes, text: str) -> None:
    async with server_that_says(answer) as place:
        steps = await steps_of(place)

    assert names(steps) == "tcp versions!"
    assert text in steps[-1].text or answer == HTTP_ANSWER


async def test_tls_to_a_listener_without_fails_at_tls(one_broker: FakeCluster) -> None:
    steps = await steps_of(one_broker.bootstrap_servers, {"security.protocol": "SSL"})

    assert names(steps) == "tcp tls!"
    assert "is this the port of a listener without TLS" in steps[-1].text


async def test_login_without_sasl_listener_fails_at_the_mechanisms(one_broker: FakeCluster) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "canary-hunter2",
    }
    steps = await steps_of(one_broker.bootstrap_servers, options)

    assert names(steps) == "tcp versions mechanisms!"
    assert "canary-hunter2" not in str(steps)


def hang_up(broker: ScriptedBroker, _: Heard) -> None:
    broker.transport.close()


def sasl_only(broker: ScriptedBroker, heard: Heard) -> None:
    """Answer SaslHandshake with the enabled mechanisms, as a SASL listener does, and nothing else."""
    if heard.api_key != 17:
        broker.transport.close()
        return
    listed = b"".join(struct.pack(">h", len(name)) + name for name in (b"PLAIN", b"SCRAM-SHA-512"))
    broker.answer(heard, struct.pack(">hi", 33, 2) + listed, header=b"")


@pytest.mark.parametrize(
    "handler, remedy",
    [
        (sasl_only, "set security_protocol=SASL_PLAINTEXT, and sasl_mechanism to one of PLAIN, SCRAM-SHA-512"),
        (hang_up, ""),
    ],
)
async def test_listener_that_wants_sasl_is_recognized(handler: object, remedy: str) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: ScriptedBroker(handler),  # type: ignore[arg-type]  # one of two functions
        "127.0.0.1",
        0,
    )
    steps = await steps_of(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()

    assert names(steps) == "tcp versions metadata!"
    assert remedy in steps[-1].remedy


async def test_disabled_mechanism_is_named_beside_the_enabled_ones() -> None:
    server = await asyncio.get_running_loop().create_server(lambda: ScriptedBroker(sasl_only), "127.0.0.1", 0)
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "canary-p",
    }
    steps = await steps_of(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", options)
    server.close()

    assert names(steps) == "tcp versions mechanisms!"
    assert steps[-1].text == "the listener has PLAIN, SCRAM-SHA-512, and not SCRAM-SHA-256"


@pytest.mark.parametrize(
    "answers, text",
    [([b"\x05\xff"], "wants a user and a password"), ([b"\x1b[31m\x05"], r"it answers \x1b["), ([b""], "it hung up")],
)
async def test_proxy_that_gives_no_connection_fails_at_the_proxy(answers: list[bytes], text: str) -> None:
    async with hostile_proxy(answers) as port:
        steps = await steps_of("kafka.invalid:9092", {"proxy.url": f"socks5h://127.0.0.1:{port}"})

    assert names(steps) == "tcp proxy!"
    assert text in steps[-1].text
    assert "look at proxy_url" in steps[-1].remedy


# Output


def test_lines_are_wrapped_for_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printed = Printed(as_json=False)
    printed.step(
        Step("kafka:9092", "tls", False, "the broker's certificate has expired", 0.1, "ask for a new one, now")
    )
    printed.last("cannot be used: kafka:9092")

    assert capsys.readouterr().out.splitlines() == [
        "kafka:9092",
        "  tls        FAILED the broker's certificate has",
        "                    expired",
        "                 -> ask for a new one, now",
        "cannot be used: kafka:9092",
    ]


def test_certificate_is_one_line() -> None:
    certificate = PresentedCertificate("kafka-1", "Test CA", ("kafka-1", "localhost"), 89)

    assert str(certificate) == "certificate of kafka-1, signed by Test CA, for kafka-1, localhost, 89 days left"
    assert str(PresentedCertificate("", "", (), None)) == "its certificate is not checked"


@pytest.mark.slow
@pytest.mark.timing
async def test_command_checks_every_broker_that_the_cluster_advertises() -> None:
    async with FakeCluster(2) as cluster:
        seed = cluster.bootstrap_servers.split(",")[0]
        result = await run("diagnose", seed)
        as_json = await run("diagnose", seed, "--json")

    rows = [json.loads(line) for line in as_json.output.splitlines()]
    assert result.code == as_json.code == 0
    assert result.output.splitlines()[-1] == "all brokers can be used"
    assert list(dict.fromkeys(row["broker"] for row in rows)) == [
        seed,
        *(f"broker {number} at {place}" for number, place in enumerate(cluster.bootstrap_servers.split(","), 1)),
    ]
    assert all(row["ok"] for row in rows)


@pytest.mark.slow
@pytest.mark.timing
async def test_command_fails_with_a_step_and_ends_at_a_signal(tmp_path: Path) -> None:
    async with dead_port() as place:
        failed = await run("diagnose", place)
    assert (failed.code, failed.output.splitlines()[-1]) == (1, f"cannot be used: {place}")

    async with server_that_says(b"") as silent, started("diagnose", silent, "--timeout", "60") as process:
        assert process.stdout is not None
        await process.stdout.readuntil(b"connected")
        process.send_signal(signal.SIGTERM)
        assert (await ended(process)).code == 143

    wrong = tmp_path / "client.properties"
    wrong.write_text("security.protocol=TLS\n")
    refused = await run("diagnose", "--config", str(wrong))
    assert refused.code == 2
