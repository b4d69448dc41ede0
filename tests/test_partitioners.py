"""Partitioners choose as Kafka's do, and a wrong choice names its maker."""

import json
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.partitioners import (
    Partitioner,
    RoundRobinPartitioner,
    check_choice,
    check_partitioner,
    murmur2,
    partition_for_key,
)
from tests.reference import murmur2 as reference

GOLDEN = json.loads((Path(__file__).parent / "protocol" / "golden" / "golden.json").read_text())
HASHES = [(bytes.fromhex(each["key"]), each["murmur2"], each["partition_of_7"]) for each in GOLDEN["hashes"]]


class FewLeaders:
    """The part of a cluster that a partitioner uses: a count, and leaders."""

    def __init__(self, count: int, leaders: set[int]) -> None:
        self.count = count
        self.leaders = leaders

    def partition_count(self, topic: str) -> int | None:
        return self.count if topic else None

    def leader_of(self, topic: str, partition: int) -> int | None:
        return 1 if topic and partition in self.leaders else None


def choices(partitioner: Partitioner, cluster: FewLeaders, times: int, *, topic: str = "t") -> list[int]:
    return [partitioner.partition(topic, None, None, None, None, cluster) for _ in range(times)]  # type: ignore[arg-type]


@pytest.mark.parametrize("key, expected, partition", HASHES)
def test_murmur2_equals_javas(key: bytes, expected: int, partition: int) -> None:
    """Keys go where Java producers send them."""
    assert murmur2(key) == expected % 2**32
    assert partition_for_key(key, 7) == partition


@given(st.binary(max_size=70), st.integers(1, 2**31 - 1))
def test_murmur2_equals_the_reference(key: bytes, count: int) -> None:
    assert murmur2(key) == reference.murmur2(key) % 2**32
    assert partition_for_key(key, count) == reference.partition_for_key(key, count)


@pytest.mark.parametrize(
    "key, count, kind, message",
    [
        (b"k", 0, ValueError, "partition_count must be at least 1, not 0"),
        (b"k", -3, ValueError, "partition_count must be at least 1, not -3"),
        (None, 3, TypeError, "key_bytes must be bytes, the serialized key, not NoneType"),
        ("k", 3, TypeError, "key_bytes must be bytes, the serialized key, not str"),
    ],
)
def test_partition_of_an_invalid_key_is_refused(  # noqa: PLR0917  # one row
    key: object, count: int, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        partition_for_key(key, count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "count, leaders, expected",
    [(3, {0, 1, 2}, [0, 1, 2, 0, 1]), (4, {1, 3}, [1, 3, 1, 3, 1]), (2, set[int](), [0, 1, 0])],
    ids=["all have a leader", "some have none", "none has one"],
)
def test_round_robin_takes_partitions_with_leaders_in_turn(count: int, leaders: set[int], expected: list[int]) -> None:
    assert choices(RoundRobinPartitioner(), FewLeaders(count, leaders), len(expected)) == expected


def test_round_robin_keeps_a_turn_for_each_topic() -> None:
    partitioner = RoundRobinPartitioner()
    cluster = FewLeaders(3, {0, 1, 2})

    assert choices(partitioner, cluster, 2, topic="a") == [0, 1]
    assert choices(partitioner, cluster, 2, topic="b") == [0, 1]
    assert choices(partitioner, cluster, 1, topic="a") == [2]


@pytest.mark.parametrize(
    "choice, message",
    [
        (99, "RoundRobinPartitioner.partition returned 99 for topic 't', which has partitions 0 to 3"),
        (4, "returned 4"),
        (-1, "returned -1"),
        (None, "RoundRobinPartitioner.partition returned None for topic 't'; it must return an int"),
        ("0", "returned '0'"),
        (True, "returned True"),
        (0.0, "returned 0.0"),
    ],
)
def test_check_choice_refuses_by_name(choice: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_choice(RoundRobinPartitioner(), choice, topic="t", partition_count=4)


def test_check_choice_returns_a_plain_int() -> None:
    """The append takes only a plain int."""

    class Lane(IntEnum):
        FAST = 2

    choice = check_choice(RoundRobinPartitioner(), Lane.FAST, topic="t", partition_count=4)

    assert (choice, type(choice)) == (2, int)


class AsyncPartition:
    async def partition(self, *_: object) -> int:
        return 0


class WrongClose(RoundRobinPartitioner):
    close = 5


@pytest.mark.parametrize(
    "partitioner, message",
    [
        (5, "partitioner must be an object with partition.*, not int"),
        (len, "partitioner must be an object with partition.*, not builtin_function_or_method"),
        (RoundRobinPartitioner, r"partitioner must be an instance: RoundRobinPartitioner\(\)"),
        (AsyncPartition(), "partitioner.partition must not be async"),
        (WrongClose(), "partitioner must be an object with partition.*, not WrongClose"),
    ],
)
def test_check_partitioner_refuses(partitioner: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_partitioner(partitioner)


def test_check_partitioner_accepts() -> None:
    check_partitioner(RoundRobinPartitioner())

    assert isinstance(RoundRobinPartitioner(), Partitioner)
