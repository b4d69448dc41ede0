"""The connections of a broker."""

import struct

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelNetwork, batch


def correlation_ids(frames: list[bytes]) -> list[int]:
    return [int(struct.unpack_from(">i", frame)[0]) for frame in frames]


def test_answers_come_in_order() -> None:
    network = ModelNetwork(2, replication_delay_s=0.2)
    client = network.client()
    client.send_produce("t", batch())
    client.send(ApiKey.API_VERSIONS, 0, b"")
    before = client.frames()

    network.advance(0.2)

    assert (before, correlation_ids(client.frames())) == ([], [1, 2])


def test_busy_connection_is_paused() -> None:
    """A broker reads eight requests ahead and then pauses the connection."""
    network = ModelNetwork(2, replication_delay_s=0.2)
    client = network.client()
    for _ in range(10):
        client.send_produce("t", batch())
    was_paused = client.is_paused

    network.advance(10)

    assert (was_paused, client.is_paused, len(client.frames())) == (True, False, 10)


def test_unknown_request_closes_the_connection() -> None:
    network = ModelNetwork()
    unknown, too_new = network.client(), network.client()

    network.deliver(unknown, struct.pack(">hhih", 999, 0, 1, -1))
    too_new.send(ApiKey.METADATA, 99, b"")

    assert unknown.closed_because == too_new.closed_because == "unknown or unsupported request"


def test_request_of_a_closed_connection_is_finished() -> None:
    """The request being served is still appended; its response is dropped."""
    network = ModelNetwork(2, replication_delay_s=0.2)
    client = network.client()
    client.send_produce("t", batch())

    network.model.brokers[1].disconnected(client.number)
    network.advance(1)

    assert (client.frames(), network.partition().high_watermark) == ([], 1)


def test_requests_are_remembered() -> None:
    client = ModelNetwork().client()

    client.produce("t", batch(), version=9)

    (seen,) = client.network.model.requests
    assert seen[:5] == (ApiKey.PRODUCE, 9, 1, "test", 100.0)


def test_dead_broker_closes_its_connections() -> None:
    network = ModelNetwork(2)
    client = network.client(2)

    network.model.kill(2, network.now)
    network.settle()

    assert client.closed_because == "the broker died"
