"""All connections of a client: the choice of a node, answers to its requests, and features of the cluster."""

import asyncio
import itertools
import struct
from collections.abc import Callable
from functools import partial

import pytest

from aioproducer._network.cluster_updates import merge
from aioproducer._network.connection import ClosedHereError
from aioproducer._network.context import ClusterFeatures, NetworkSettings
from aioproducer._network.network_client import RawResponse
from aioproducer._protocol.api_versions import FinalizedFeatures
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    METADATA,
    MetadataResponse,
    ProducerIdResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.transaction_messages import CodeResponse
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import BrokerConnectionError, ProtocolError, UnsupportedVersionError
from tests.fakes.network import ClientAndNetwork, Ends, client_on
from tests.fakes.scripted_broker import Heard, ScriptedBroker
from tests.fakes.virtual_loop import in_virtual_time

PRODUCER_ID_77 = bytes(6) + (77).to_bytes(8, "big") + bytes(2) + b"\x00"


def cluster_of(*nodes: Node) -> Cluster:
    return merge(Cluster(), MetadataResponse(-1, nodes, ()), 0.0)


def gives_ids(broker: ScriptedBroker, heard: Heard) -> None:
    broker.answer(heard, PRODUCER_ID_77)


async def producer_id(network: ClientAndNetwork, node_id: int | None = None) -> ProducerIdResponse:
    return await network.client.request(
        INIT_PRODUCER_ID,
        encode_init_producer_id_request,
        lambda answer: decode_init_producer_id_response(answer.version, answer.payload),
        node_id=node_id,
    )


async def until(network: ClientAndNetwork, condition: Callable[[], bool], limit_s: float = 100.0) -> None:
    deadline = network.loop.time() + limit_s
    while not condition():
        assert network.loop.time() < deadline
        await asyncio.sleep(0.001)


async def connect(network: ClientAndNetwork, *node_ids: int) -> None:
    for node_id in node_ids:
        network.client.nodes[node_id].connect()
    await until(network, lambda: all(network.is_ready(node_id) for node_id in node_ids))


async def connected_client(server: Callable[[], ScriptedBroker] = ScriptedBroker) -> ClientAndNetwork:
    """A client with a connection to node 1, at a:1."""
    network = client_on()
    network.loop.servers["a", 1] = server
    network.client.update_nodes(cluster_of(Node(1, "a", 1)))
    await connect(network, 1)
    return network


@in_virtual_time
async def test_request_connects_and_asks_any_broker() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
    answer = await producer_id(network)
    await network.client.close()
    assert answer.producer_id == 77


@in_virtual_time
async def test_every_address_of_a_name_is_tried() -> None:
    network = client_on()
    network.loop.names["seed"] = ["10.0.0.1", "10.0.0.2"]
    network.loop.servers["10.0.0.2", 9092] = lambda: ScriptedBroker(gives_ids)
    await producer_id(network)
    await network.client.close()
    assert [host for _, host, _ in network.loop.connects] == ["10.0.0.1", "10.0.0.2"]


@in_virtual_time
async def test_unreachable_address_is_given_up_for_the_next() -> None:
    """An address that swallows packets costs a quarter of a second, not its set-up time-out."""
    network = client_on(settings=NetworkSettings(connection_setup_timeout_ms=2000))
    network.loop.names["seed"] = ["10.0.0.1", "10.0.0.2"]
    network.loop.black_holes.add("10.0.0.1")
    network.loop.servers["10.0.0.2", 9092] = lambda: ScriptedBroker(gives_ids)
    start = network.loop.time()
    await producer_id(network)
    await network.client.close()
    assert 0.25 < (network.loop.time() - start) < 0.3


@in_virtual_time
async def test_second_bootstrap_broker_is_tried_beside_a_slow_first() -> None:
    """A silent broker delays no request that another broker would answer."""
    network = client_on(bootstrap=[("slow", 1), ("slow2", 2), ("good", 3)])
    network.loop.black_holes.update(("slow", "slow2"))
    network.loop.servers["good", 3] = lambda: ScriptedBroker(gives_ids)
    start = network.loop.time()
    await producer_id(network)
    await network.client.close()
    assert network.loop.time() - start < 3.5


@in_virtual_time
async def test_unreachable_brokers_are_each_named_with_the_reason() -> None:
    network = client_on(bootstrap=[("one", 1), ("two", 2)])
    network.loop.names["two"] = []
    with pytest.raises(BrokerConnectionError) as caught:
        await producer_id(network)
    await network.client.close()
    text = str(caught.value)

    assert "one:1: one: Connection refused" in text
    assert "cannot resolve 'two'" in text


@in_virtual_time
async def test_broker_too_old_has_its_own_error() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(spoken=((0, 0, 2), (3, 0, 5), (18, 0, 2)))
    with pytest.raises(UnsupportedVersionError, match="too old"):
        await producer_id(network)
    await network.client.close()


@in_virtual_time
async def test_unreadable_answer_is_an_error_of_the_question() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(lambda broker, heard: broker.answer(heard, b"?"))
    with pytest.raises(ProtocolError) as caught:
        await producer_id(network)
    await network.client.close()
    assert "InitProducerId v5 cannot be read" in str(caught.value)


@in_virtual_time
async def test_reconnects_with_growing_pauses() -> None:
    """A broker that is down is tried 50 ms after, then 100, 200, ... up to a second, each by a fifth more or less."""
    network = client_on()
    network.client.update_nodes(cluster_of(Node(1, "dead", 1)))
    end = network.loop.time() + 60
    while network.loop.time() < end:
        network.client.nodes[1].connect()
        await asyncio.sleep(0.005)
    await network.client.close()
    times = [when for when, host, _ in network.loop.connects if host == "dead"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]

    expected_s = [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * (len(pauses) - 5)]
    assert all(0.79 * plain <= pause <= 1.2 * plain + 0.02 for pause, plain in zip(pauses, expected_s, strict=True))
    assert len({round(pause, 3) for pause in pauses[5:]}) > 5


@in_virtual_time
async def test_broker_that_only_handshakes_counts_as_down() -> None:
    network = client_on()
    network.loop.servers["mad", 1] = lambda: ScriptedBroker(lambda broker, _: broker.transport.close())
    network.client.update_nodes(cluster_of(Node(1, "mad", 1)))
    end = network.loop.time() + 60
    while network.loop.time() < end:
        network.client.nodes[1].connect()
        if network.is_ready(1):
            network.send(1, Ends().request("a"))
        await asyncio.sleep(0.005)
    await network.client.close()
    assert 55 <= len(network.loop.connects) <= 85


@in_virtual_time
async def test_wish_to_connect_is_kept_through_the_pause() -> None:
    network = client_on()
    network.client.update_nodes(cluster_of(Node(1, "late", 1)))
    network.client.nodes[1].connect()
    await until(network, lambda: network.client.nodes[1].trouble is not None)
    network.loop.servers["late", 1] = ScriptedBroker
    network.client.nodes[1].connect()
    await asyncio.sleep(0.1)
    ready = network.is_ready(1), network.client.nodes[1].trouble
    await network.client.close()
    assert ready == (True, None)


@in_virtual_time
async def test_connection_id_changes_with_every_connection() -> None:
    network = client_on()
    network.loop.servers["a", 1] = ScriptedBroker
    network.client.update_nodes(cluster_of(Node(1, "a", 1)))
    ids = [network.connection_number(1)]
    for _ in range(2):
        network.client.nodes[1].connect()
        await until(network, lambda: network.is_ready(1))
        ids.append(network.connection_number(1))
        network.client.nodes[1].disconnect(BrokerConnectionError("enough"))
        await asyncio.sleep(0.01)
        ids.append(network.connection_number(1))
    await network.client.close()
    none, first, after_first, second, after_second = ids

    assert (none, after_first, after_second) == (0, 0, 0)
    assert 0 < first < second


@in_virtual_time
async def test_throttled_node_is_not_ready_until_its_pause_is_over() -> None:
    """As long as the broker asks, at most a minute (KIP-219)."""
    network = await connected_client()
    asks_for_a_pause = ProducerIdResponse(2**31 - 1, 0, -1, -1)
    network.client.nodes[1].apply_throttle_and_versions(asks_for_a_pause, INIT_PRODUCER_ID, network.loop.time())
    seen = [network.is_ready(1)]
    for pause_s in (59.0, 1.1):
        await asyncio.sleep(pause_s)
        seen.append(network.is_ready(1))
    await network.client.close()
    assert seen == [False, False, True]


@in_virtual_time
async def test_shorter_pause_does_not_end_a_longer_one() -> None:
    """As in Java: each answer says how long it is from there, and the latest end counts."""
    network = await connected_client()
    for pause_ms in (10_000, 100):
        answer = CodeResponse(throttle_time_ms=pause_ms, error_code=0)
        network.client.nodes[1].apply_throttle_and_versions(answer, METADATA, network.loop.time())
    ready = []
    for seconds in (1, 8, 2):
        await asyncio.sleep(seconds)
        ready.append(network.is_ready(1))
    await network.client.close()
    assert ready == [False, False, True]


@in_virtual_time
async def test_bootstrap_connection_becomes_the_nodes() -> None:
    """One connection, not two, when metadata names the address that was asked."""
    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
    await producer_id(network)
    network.client.update_nodes(cluster_of(Node(5, "seed", 9092)))
    ready = network.is_ready(5)
    await network.client.close()
    assert (ready, len(network.loop.connects)) == (True, 1)


@in_virtual_time
async def test_attempt_at_a_bootstrap_address_becomes_the_nodes() -> None:
    """Metadata came by another address while it was connecting: errors and totals name the node."""
    network = client_on()
    broker = ScriptedBroker()
    network.loop.servers["seed", 9092] = lambda: broker
    waiting = asyncio.ensure_future(producer_id(network))
    await asyncio.sleep(0.0001)
    network.client.update_nodes(cluster_of(Node(5, "seed", 9092)))
    await asyncio.sleep(1)
    broker.transport.close()
    with pytest.raises(BrokerConnectionError, match="broker 5 at seed:9092"):
        await waiting
    rows = network.client.counters_by_node.rows()
    await network.client.close()
    assert (rows[5].bytes_out > 0, rows[5].connections_closed) == (True, 1)


@in_virtual_time
async def test_node_that_left_is_closed_when_nothing_is_in_flight() -> None:
    broker = ScriptedBroker()
    network = await connected_client(lambda: broker)
    ends = Ends()
    network.send(1, ends.request("a"))
    await asyncio.sleep(0.01)
    network.client.update_nodes(cluster_of(Node(2, "b", 2)))
    is_known = 1 in network.client.nodes
    broker.answer(broker.requests[0], b"late")
    await asyncio.sleep(0.01)
    still_connected = broker.is_connected
    await network.client.close()
    assert (is_known, ends.all, still_connected) == (False, [("a", b"late")], False)


@in_virtual_time
async def test_bootstrap_is_asked_again_when_all_nodes_are_gone() -> None:
    """All brokers were replaced; their name leads to the new ones (KIP-899)."""
    network = client_on()
    network.client.update_nodes(cluster_of(Node(1, "old1", 1), Node(2, "old2", 2)))
    with pytest.raises(BrokerConnectionError, match="none of 3 brokers"):
        await producer_id(network)
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
    answer = await producer_id(network)
    await network.client.close()
    assert answer.producer_id == 77


@in_virtual_time
async def test_least_loaded_node_is_asked() -> None:
    network = client_on()
    asked: list[int] = []

    def server(node_id: int) -> Callable[[], ScriptedBroker]:
        def on_request(broker: ScriptedBroker, heard: Heard) -> None:
            if heard.api_key == INIT_PRODUCER_ID.key:
                asked.append(node_id)
                gives_ids(broker, heard)

        return lambda: ScriptedBroker(on_request)

    network.client.update_nodes(cluster_of(Node(1, "a", 1), Node(2, "b", 2)))
    for node_id, host in ((1, "a"), (2, "b")):
        network.loop.servers[host, node_id] = server(node_id)
        network.client.nodes[node_id].connect()
    await until(network, lambda: network.is_ready(1) and network.is_ready(2))
    network.send(1, Ends().request("busy"))
    for _ in range(5):
        await producer_id(network)
    await network.client.close()
    assert asked == [2] * 5


@in_virtual_time
async def test_close_ends_connecting_and_in_flight() -> None:
    network = client_on()
    network.loop.black_holes.add("hole")
    network.loop.servers["a", 1] = ScriptedBroker
    network.client.update_nodes(cluster_of(Node(1, "a", 1), Node(2, "hole", 2)))
    network.client.nodes[1].connect()
    network.client.nodes[2].connect()
    await until(network, lambda: network.is_ready(1))
    ends = Ends()
    network.send(1, ends.request("a"))
    await network.client.close()
    await network.client.close()
    errors, tasks = [str(error) for error in ends.errors()], len(asyncio.all_tasks())

    assert errors == ["broker 1 at a:1: the producer was closed"]
    assert tasks == 1


@in_virtual_time
async def test_counters_count() -> None:
    network = client_on()
    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
    await producer_id(network)
    await network.client.close()
    counters = network.client.counters

    assert (counters.requests, counters.responses) == (2, 2)
    assert (counters.connections_created, counters.connections_closed, counters.connection_failures) == (1, 1, 0)
    assert counters.bytes_out > 0
    assert counters.bytes_in > 0


@in_virtual_time
async def test_node_0_is_asked_before_the_bootstrap_addresses() -> None:
    """Metadata names it."""
    network = client_on()
    network.loop.servers["a", 1] = network.loop.servers["seed", 9092] = lambda: ScriptedBroker(gives_ids)
    network.client.update_nodes(cluster_of(Node(0, "a", 1)))
    await producer_id(network)
    in_flight = network.client.requests_in_flight()
    await network.client.close()
    assert ([host for _, host, _ in network.loop.connects], in_flight) == (["a"], {0: 0})


def asked_nodes(network: ClientAndNetwork, *node_ids: int) -> list[int]:
    asked: list[int] = []

    def broker(node_id: int) -> ScriptedBroker:
        def note(_: ScriptedBroker, heard: Heard) -> None:
            if heard.api_key == INIT_PRODUCER_ID.key:
                asked.append(node_id)

        return ScriptedBroker(note)

    for node_id in node_ids:
        network.loop.servers[f"host{node_id}", 1] = partial(broker, node_id)
    network.client.update_nodes(cluster_of(*(Node(node_id, f"host{node_id}", 1) for node_id in node_ids)))
    return asked


async def ask_and_give_up(network: ClientAndNetwork, *, after_s: float, node_id: int | None = None) -> None:
    """Ask for a producer id, and wait for the answer for so long."""
    asking = asyncio.create_task(producer_id(network, node_id))
    await asyncio.sleep(after_s)
    asking.cancel()
    await asyncio.wait((asking,))


@in_virtual_time
async def test_silent_node_is_asked_last() -> None:
    network = client_on()
    asked = asked_nodes(network, 1, 2)
    await connect(network, 1, 2)
    network.send(1, Ends().request("silent"))
    await asyncio.sleep(2)
    for name in ("busy", "very busy"):
        network.send(2, Ends().request(name))
    await ask_and_give_up(network, after_s=0.1)
    await network.client.close()
    assert asked == [2]


@in_virtual_time
async def test_silent_broker_is_not_asked_by_its_bootstrap_address() -> None:
    """A second connection to the same node would be silent too, and cost the broker a handshake."""
    network = client_on()
    network.loop.servers["seed", 9092] = ScriptedBroker
    network.client.update_nodes(cluster_of(Node(1, "seed", 9092)))
    await connect(network, 1)
    await ask_and_give_up(network, after_s=5)
    await network.client.close()
    assert len(network.loop.connects) == 1


@in_virtual_time
async def test_request_to_a_throttled_node_waits_for_its_pause() -> None:
    """It can be reached, and is asked by name because no other has the answer."""
    network = await connected_client(lambda: ScriptedBroker(gives_ids))
    began = network.loop.time()
    network.client.nodes[1].apply_throttle_and_versions(
        CodeResponse(throttle_time_ms=5_000, error_code=0), METADATA, began
    )
    await producer_id(network, 1)
    await network.client.close()
    assert network.loop.time() - began == pytest.approx(5, abs=0.1)


@in_virtual_time
async def test_node_0_is_asked_when_it_is_meant() -> None:
    """And not any broker: it alone coordinates what is asked for."""
    network = client_on()
    asked = asked_nodes(network, 0, 1)
    await connect(network, 0, 1)
    network.send(0, Ends().request("keeps it busy"))
    await ask_and_give_up(network, after_s=0.1, node_id=0)
    await network.client.close()
    assert asked == [0]


def who_answered(answer: RawResponse) -> MetadataResponse:
    return MetadataResponse(answer.node_id, (), ())


@in_virtual_time
async def test_refused_version_ends_a_connection_without_waiters() -> None:
    """A request on that connection would be refused as well."""
    network = client_on()

    def give_up_and_refuse(broker: ScriptedBroker, heard: Heard) -> None:
        asking.cancel()
        broker.answer(heard, struct.pack(">ihqhB", 0, 35, -1, -1, 0))

    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(give_up_and_refuse)
    asking = asyncio.create_task(producer_id(network))
    await asyncio.sleep(1)
    closed = network.client.counters.connections_closed
    await network.client.close()
    assert closed == 1


@in_virtual_time
async def test_answer_names_the_node_behind_a_bootstrap_connection() -> None:
    network = client_on()

    def name_and_answer(broker: ScriptedBroker, heard: Heard) -> None:
        network.client.update_nodes(cluster_of(Node(5, "seed", 9092)))
        broker.answer(heard, b"")

    network.loop.servers["seed", 9092] = lambda: ScriptedBroker(name_and_answer)
    answer = await network.client.request(INIT_PRODUCER_ID, encode_init_producer_id_request, who_answered)
    await network.client.close()
    assert answer.from_node == 5


@in_virtual_time
async def test_only_node_is_connected_again_after_an_idle_close() -> None:
    """An idle connection was closed; nothing else would wake the waiter."""
    network = await connected_client(lambda: ScriptedBroker(lambda broker, heard: broker.answer(heard, b"")))
    network.client.nodes[1].disconnect(ClosedHereError("unused"))  # not noticed yet
    async with asyncio.timeout(100):
        answer = await network.client.request(
            INIT_PRODUCER_ID, encode_init_producer_id_request, who_answered, node_id=1
        )
    await network.client.close()
    assert answer.from_node == 1


def agreed(epoch: int, transaction_version: int) -> FinalizedFeatures:
    return FinalizedFeatures(epoch, {"transaction.version": transaction_version})


def test_broker_that_is_behind_takes_nothing_back() -> None:
    """Transactions would go back to the older protocol, and forth again with the next answer."""
    features = ClusterFeatures()
    features.take(agreed(7, 2))

    features.take(agreed(5, 0))
    assert features.transaction_version == 2
    features.take(agreed(8, 1))
    assert features.transaction_version == 1


def test_another_cluster_has_its_own_feature_epochs() -> None:
    """The new node's features replace those of the one before."""
    features = ClusterFeatures()
    features.take(agreed(7, 2))

    features.replace(agreed(1, 0))

    assert (features.newest.epoch, features.transaction_version) == (1, 0)
