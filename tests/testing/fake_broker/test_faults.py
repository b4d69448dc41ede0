"""Every fault does what its verb says, as often as it was told to."""

import re
import struct

import pytest

from aioproducer.testing import ApiKey, Where
from tests.testing.model_network import Answer, ModelNetwork, batch

PRODUCE = Where(api=ApiKey.PRODUCE)


def test_error_is_answered_n_times() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.error(7, PRODUCE, times=2)

    codes = [client.produce("t", batch()).error_code for _ in range(3)]

    assert (codes, client.network.partition().log.end_offset) == ([7, 7, 0], 1)


def test_error_waits_for_its_turn() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.error(7, PRODUCE, skip=1)

    assert [client.produce("t", batch()).error_code for _ in range(3)] == [0, 7, 0]


def test_error_after_append_keeps_the_offset() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.error_after_append(20, PRODUCE)

    answer = client.produce("t", batch())

    assert (answer[:2], client.network.partition().log.end_offset) == ((20, 0), 1)


def test_unknown_error_code_can_be_sent() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.error(999, Where())
    client.send(ApiKey.INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 0))

    (frame,) = client.frames()

    assert struct.unpack_from(">h", frame, 8) == (999,)


def test_records_are_refused_by_index() -> None:
    """The response names the rejected records (KIP-467)."""
    client = ModelNetwork().client()
    client.network.model.faults.record_errors({1: "bad"}, PRODUCE)

    assert client.produce("t", batch([b"a", b"b"])) == Answer(87, -1, -1, -1, (1,), None)


def test_partition_is_left_out() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.omit_partition(Where(topic="t"))

    client.send_produce("t", batch())

    assert client.answer(ApiKey.PRODUCE, 10).responses == ()
    assert client.network.partition().log.end_offset == 1


def test_connection_drops_before_or_after_the_append() -> None:
    network = ModelNetwork()
    ends = []
    for after_append in (False, True):
        network.model.faults.drop_connection(PRODUCE, after_append=after_append)
        client = network.client()
        client.send_produce("t", batch())
        ends.append((client.closed_because is not None, network.partition().log.end_offset))

    assert ends == [(True, 0), (True, 1)]


def test_answer_is_delayed() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.delay(2.0, PRODUCE)
    client.send_produce("t", batch())
    before = (client.frames(), client.network.partition().log.end_offset)

    client.network.advance(2)

    assert (before, client.produce_answer().error_code) == (([], 1), 0)


def test_request_is_delayed() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.delay(2.0, PRODUCE, after_append=False)
    client.send_produce("t", batch())
    before = client.network.partition().log.end_offset

    client.network.advance(2)

    assert (before, client.network.partition().log.end_offset) == (0, 1)


def test_stall_ends_when_it_is_removed() -> None:
    client = ModelNetwork().client()
    stall = client.network.model.faults.stall(Where(node_id=1))
    client.send_produce("t", batch())
    client.network.advance(60)
    before = client.frames()

    client.network.model.faults.remove(stall)
    client.network.advance(0)

    assert (before, client.produce_answer().error_code) == ([], 0)


def test_half_a_frame_is_sent() -> None:
    client = ModelNetwork().client()
    client.network.model.faults.half_frame(PRODUCE)

    client.send_produce("t", batch())

    (size,) = struct.unpack_from(">i", client.received)
    assert 0 < len(client.received) < size + 4
    assert client.closed_because == "fault: half a frame"


def test_wrong_frames_are_sent() -> None:
    faults = (network := ModelNetwork()).model.faults
    first_bytes = []
    for lie in (faults.wrong_correlation_id, faults.oversized_frame):
        lie(PRODUCE)
        client = network.client()
        client.send_produce("t", batch())
        first_bytes.append(struct.unpack_from(">ii", client.received))
    faults.garbage(b"HTTP/1.1 400", PRODUCE)
    client.send_produce("t", batch())

    assert first_bytes[0][1] == 1_000_001
    assert first_bytes[1] == (2**31 - 1, 1)
    assert client.received.endswith(b"HTTP/1.1 400")


def test_throttle_is_reported_and_applied() -> None:
    """The broker reports the throttle time and reads nothing meanwhile (KIP-219)."""
    client = ModelNetwork().client()
    client.network.model.faults.throttle(300, PRODUCE)
    client.send_produce("t", batch())
    told = client.answer(ApiKey.PRODUCE, 10).throttle_time.total_seconds()
    client.send_produce("t", batch())
    at_once = client.frames()

    client.network.advance(0.3)

    assert (told, at_once, client.produce_answer().error_code) == (0.3, [], 0)


def test_fault_counts_its_hits() -> None:
    client = ModelNetwork().client()
    fault = client.network.model.faults.error(7, Where(topic="t", partition=0), times=None)
    for _ in range(3):
        client.produce("t", batch())

    client.network.model.faults.clear()

    assert (fault.hits, client.produce("t", batch()).error_code) == (3, 0)


PRODUCE = Where(api=ApiKey.PRODUCE)


@pytest.mark.parametrize(
    "fault,arguments,said",
    [
        ("delay", {"seconds": "0.2"}, "seconds must be a number of seconds, not str"),
        ("delay", {"seconds": None}, "seconds must be a number of seconds, not NoneType"),
        ("delay", {"seconds": float("nan")}, "seconds must be a number of seconds, 0 or more, not nan"),
        ("delay_tls", {"seconds": -1, "where": Where()}, "seconds must be a number of seconds, 0 or more, not -1"),
        ("throttle", {"throttle_ms": "500"}, "throttle_ms must be an int, not str"),
        ("throttle", {"throttle_ms": -5}, "throttle_ms must be between 0 and 2147483647, not -5"),
        ("garbage", {"data": "text"}, "data must be bytes, not str"),
        ("garbage_tls", {"data": None, "where": Where()}, "data must be bytes, not NoneType"),
        ("oversized_frame", {"size": 2**40}, "size must be between -2147483648 and 2147483647"),
        ("stall", {"times": "3"}, "times must be an int, or None for as often as it is met, not str"),
        ("stall", {"times": 1.5}, "times must be an int, or None for as often as it is met, not float"),
        ("stall", {"times": True}, "times must be an int, or None for as often as it is met, not bool"),
        ("stall", {"times": -1}, "times must be at least 0, not -1"),
        ("stall", {"skip": "1"}, "skip must be an int, not str"),
        ("stall", {"skip": -1}, "skip must be at least 0, not -1"),
        ("stall", {"where": "PRODUCE"}, "where must be a Where, not str"),
        (
            "stall",
            {"where": Where(api="PRODUCE")},
            "where.api must be an ApiKey, such as ApiKey.PRODUCE, not 'PRODUCE'",
        ),
        ("stall", {"where": Where(api=0)}, "where.api must be an ApiKey, such as ApiKey.PRODUCE, not 0"),
        ("stall", {"where": Where(node_id="1")}, "where.node_id must be an int, not str"),
        ("stall", {"where": Where(node_id=0)}, "where.node_id must be at least 1, not 0"),
        ("stall", {"where": Where(client_id=b"c")}, "where.client_id must be a str, not bytes"),
        ("error", {"code": 3, "where": Where(topic=5)}, "where.topic must be a str, not int"),
        ("error", {"code": 3, "where": Where(topic="t", partition="0")}, "where.partition must be an int, not str"),
        ("error", {"code": "3"}, "code must be an ErrorCode or an int, not str"),
        ("error", {"code": 2**15}, "code must be between -32768 and 32767, not 32768"),
        ("error", {"code": 3, "base_offset": "0"}, "base_offset must be an int or None, not str"),
        ("record_errors", {"records": [0]}, "records must be a mapping of indexes to messages, not list"),
        ("record_errors", {"records": {"0": "x"}}, "records: an index must be an int, not str"),
        ("record_errors", {"records": {0: 5}}, "records[0] must be a str or None, not int"),
    ],
    ids=str,
)
def test_wrong_argument_is_refused_where_it_is_given(fault: str, arguments: dict[str, object], said: str) -> None:
    """It would make no fault, or another one: a test about a failure would pass without one."""
    faults = ModelNetwork().model.faults

    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        getattr(faults, fault)(**{"where": PRODUCE, **arguments})


@pytest.mark.parametrize("where", [Where(topic="t"), Where(partition=0)], ids=["topic", "partition"])
def test_rule_about_whole_requests_names_no_partition(where: Where) -> None:
    """Such a rule would never apply, so a test relying on it would test nothing."""
    faults = ModelNetwork().model.faults

    for lay_down in (faults.drop_connection, faults.stall, faults.half_frame, faults.wrong_correlation_id):
        with pytest.raises(ValueError, match="whole requests"):
            lay_down(where)
    with pytest.raises(ValueError, match="whole requests"):
        faults.delay(1.0, where)
