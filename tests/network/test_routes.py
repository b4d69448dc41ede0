"""Connections that go elsewhere than brokers advertise, or nowhere."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

import pytest

from aioproducer import Producer
from aioproducer._network.context import NetworkContext, NetworkSettings
from aioproducer._network.node_connection import NodeConnection
from aioproducer._network.routes import Routes
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig
from aioproducer.errors import BrokerConnectionError, ConfigurationError, ConfigurationTypeError, KafkaError
from aioproducer.testing import FakeCluster
from tests.fakes.network import network_context
from tests.fakes.scripted_broker import ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time, virtual_loop
from tests.fakes.wrong_servers import dead_port

AddressMap = Mapping[str, str] | Callable[[str], str | None]


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="h:9092", **options)  # type: ignore[arg-type]


async def failed_attempt(node: Node, routes: Routes) -> str:
    node_connection = NodeConnection(node, network_context(NetworkSettings(routes=routes)), lambda _: None)
    node_connection.connect()
    await asyncio.sleep(1)
    text = str(node_connection.last_error)
    await node_connection.close(BrokerConnectionError("done"))
    return text


# address_map


@pytest.mark.parametrize("is_function", [False, True])
async def test_records_go_where_the_map_says(one_broker: FakeCluster, *, is_function: bool) -> None:
    """Bootstrap servers and advertised addresses alike; `.invalid` cannot be resolved."""
    places = {"kafka.invalid:9092": one_broker.bootstrap_servers}
    address_map: AddressMap = places.get if is_function else places
    async with Producer("kafka.invalid:9092", address_map=address_map) as producer:
        await producer.send("orders", b"tea", partition=0)

    assert [record.value for record in one_broker.records("orders", 0)] == [b"tea"]


@in_virtual_time
async def test_error_names_the_advertised_and_the_mapped_address() -> None:
    routes = Routes(address_map={"kafka-2.internal:9092": "10.0.0.9:19092", "[fd00::2]:9092": "10.0.0.9:19092"})

    for host, shown in (("kafka-2.internal", "kafka-2.internal:9092"), ("fd00::2", "[fd00::2]:9092")):
        assert await failed_attempt(Node(2, host, 9092), routes) == (
            f"cannot connect to broker 2 at {shown} (mapped to 10.0.0.9:19092): 10.0.0.9: Connection refused"
        )


@in_virtual_time
async def test_bootstrap_connection_to_a_mapped_address_is_adopted() -> None:
    """The advertised address is compared, not the one that is connected to: TLS checks the advertised name."""
    virtual_loop().servers["127.0.0.1", 19092] = ScriptedBroker
    routes = Routes(address_map={"kafka-1:9092": "127.0.0.1:19092"})
    node_connection = NodeConnection(
        Node(-1, "kafka-1", 9092), network_context(NetworkSettings(routes=routes)), lambda _: None
    )
    node_connection.connect()
    await asyncio.sleep(1)
    place, is_open = node_connection.place, node_connection.is_open
    await node_connection.close(BrokerConnectionError("done"))

    assert (place, is_open) == (("kafka-1", 9092), True)


@pytest.mark.parametrize(
    "result, text",
    [
        (7, "address_map returned 7 for kafka-2:9092, which is not host:port"),
        ("nowhere", "address_map returned 'nowhere' for kafka-2:9092, which is not host:port"),
        (None, "cannot connect to broker 2 at kafka-2:9092: kafka-2: Connection refused"),
        (ZeroDivisionError("no"), "address_map failed for kafka-2:9092: ZeroDivisionError: no"),
    ],
)
@in_virtual_time
async def test_function_that_gives_no_address_is_a_failed_attempt(result: object, text: str) -> None:
    def address_map(_: str) -> str | None:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[return-value]  # as a careless application would

    assert await failed_attempt(Node(2, "kafka-2", 9092), Routes(address_map=address_map)) == text


def test_map_is_read_from_a_property_file() -> None:
    properties = {"bootstrap.servers": "h:1", "address.map": " kafka-1:9092 = localhost:19092 ,[::1]:1=h:2,"}

    assert ProducerConfig.from_kafka_properties(properties).address_map == {
        "kafka-1:9092": "localhost:19092",
        "[::1]:1": "h:2",
    }


@pytest.mark.parametrize(
    "given, text",
    [
        ({"kafka-1": "h:1"}, "address_map: 'kafka-1' is not host:port"),
        ({"kafka-1:1": "h:0"}, "address_map: 'h:0' is not host:port"),
        ({"kafka-1:1": ("h", 1)}, "is not a str such as 'kafka-1:9092'"),
        ({1: "h:1"}, "1 is not a str"),
        ("kafka-1:1=h:1", "address_map must be a dict"),
    ],
)
def test_invalid_map_is_refused(given: object, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        config(address_map=given)

    assert text in str(raised.value)


def test_map_of_a_property_file_without_an_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'kafka-1:9092' is not like advertised:9092=reachable:19092"):
        ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", "address.map": "kafka-1:9092"})


# allowed_brokers


@pytest.mark.parametrize(
    "patterns, host, port, is_allowed",
    [
        ([], "169.254.169.254", 80, True),
        (["kafka-*.internal"], "kafka-2.internal", 9092, True),
        (["kafka-*.internal"], "KAFKA-2.Internal.", 9092, True),
        (["kafka-*.internal"], "kafka-2.internal.evil.example", 9092, False),
        (["kafka-*.internal:9092"], "kafka-2.internal", 9093, False),
        (["kafka-*.internal:*"], "kafka-2.internal", 9093, True),
        (["10.0.0.*:9092"], "10.0.0.7", 9092, True),
        (["10.0.0.*:9092", "localhost"], "169.254.169.254", 80, False),
        (["[fd00::*]:9092"], "fd00::2", 9092, True),
        (["[fd00::*]"], "fe80::2", 9092, False),
        ("a, b:1", "b", 1, True),
    ],
)
@in_virtual_time
async def test_broker_outside_the_allowed_ones_is_not_connected_to(  # T8
    patterns: Sequence[str], host: str, port: int, *, is_allowed: bool
) -> None:
    """A cluster that is taken over must not lead its clients to other hosts of their network."""
    allowed = config(allowed_brokers=patterns).allowed_brokers
    text = await failed_attempt(Node(2, host, port), Routes(allowed_brokers=allowed))

    assert bool(virtual_loop().connects) == is_allowed
    if not is_allowed:
        assert (
            f"broker 2 at {f'[{host}]' if ':' in host else host}:{port}, as the cluster advertises it, is none of"
            in (text)
        )
        assert all(pattern in text for pattern in patterns)


@in_virtual_time
async def test_broker_that_is_not_allowed_is_not_even_resolved() -> None:
    """A lookup would tell the name to whoever runs the zone."""
    asked = []

    async def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        return []

    virtual_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # of this loop alone
    allowed = config(allowed_brokers=["kafka-*"]).allowed_brokers
    await failed_attempt(Node(2, "secret.evil.example", 9092), Routes(allowed_brokers=allowed))

    assert asked == []


async def test_record_of_a_broker_that_is_not_allowed_says_so(one_broker: FakeCluster) -> None:
    """The bootstrap server was written down by the user, and is always allowed."""
    options = {"request_timeout_ms": 200, "delivery_timeout_ms": 300, "linger_ms": 0}
    server = one_broker.bootstrap_servers.replace("127.0.0.1", "localhost")
    async with Producer(server, allowed_brokers=["kafka-*:9092"], **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match=r"is none of allowed_brokers: kafka-\*:9092"):
            await producer.send("orders", b"tea", partition=0)


@pytest.mark.parametrize(
    "given, kind, text",
    [
        (["::1"], ConfigurationError, "an IPv6 address needs brackets"),
        (["kafka 1"], ConfigurationError, "is no pattern of host or host:port"),
        (["kafka:0"], ConfigurationError, "must be between 1 and 65535"),
        ([1], ConfigurationTypeError, "is not a str such as"),
        (7, ConfigurationTypeError, "allowed_brokers must be patterns"),
        (b"a", ConfigurationTypeError, "allowed_brokers must be patterns"),
    ],
)
def test_invalid_pattern_is_refused(given: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as raised:
        config(allowed_brokers=given)

    assert text in str(raised.value)


# Names


@in_virtual_time
async def test_advertised_name_that_cannot_be_resolved_is_explained() -> None:
    """Row 52 of the bad configurations: who advertised the name, and where to change it."""
    virtual_loop().names["kafka-2.internal"] = []
    text = await failed_attempt(Node(2, "kafka-2.internal", 9092), Routes())

    assert text == (
        "broker 2 at kafka-2.internal:9092, as the cluster advertises it, cannot be resolved here: "
        "Name or service not known; the broker's advertised.listeners must have a name that is known here, "
        "or address_map another address for it"
    )


async def hosts_of_attempts(node: Node, context: NetworkContext, attempts: int) -> list[str]:
    """Return the host that TLS and SASL would check, for each of some attempts, which fail."""
    hosts, has_ended = [], asyncio.Event()
    way = NodeConnection(node, context, lambda _: has_ended.set())
    for _ in range(attempts):
        has_ended.clear()
        way.retry_at = 0.0
        way.connect()
        await has_ended.wait()
        hosts.append(way.host)
    await way.close(BrokerConnectionError("done"))
    return hosts


async def test_canonical_names_are_of_bootstrap_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kerberos knows a broker by the name that its address has, not by an alias."""
    canonical = {"127.0.0.1": "kafka-1.example", "127.0.0.2": "kafka-2.example"}
    names = {"alias": ["127.0.0.1", "127.0.0.2", "127.0.0.3"], **{name: [place] for place, name in canonical.items()}}

    def getnameinfo(address: tuple[str, int], _: int) -> tuple[str, str]:
        if address[0] not in canonical:
            raise socket.gaierror(-2, "Name or service not known")
        return canonical[address[0]], str(address[1])

    async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in names.get(host, [host])]

    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)
    asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as applications do
    context = network_context(NetworkSettings(routes=Routes(uses_canonical_names=True)))
    async with dead_port() as place:
        port = int(place.rpartition(":")[2])
        of_bootstrap = await hosts_of_attempts(Node(-1, "alias", port), context, 3)
        of_broker = await hosts_of_attempts(Node(1, "alias", port), context, 1)

    assert of_bootstrap == ["kafka-1.example", "kafka-2.example", "127.0.0.3"]
    assert of_broker == ["alias"]


def test_lookup_mode_is_kafkas() -> None:
    assert config().client_dns_lookup == "use_all_dns_ips"
    with pytest.raises(ConfigurationError, match="resolve_canonical_bootstrap_servers_only"):
        config(client_dns_lookup="default")
