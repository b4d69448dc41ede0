"""Any configuration: refused by the constructor, by name and before any I/O, or it works."""

import asyncio
import collections
import contextlib
import math
import os
from pathlib import Path
from typing import Protocol, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproducer import ConfigurationError, KafkaError, Outcome, Producer, ProducerConfig, RecordMetadata
from aioproducer.config._option_types import Acks, BoolOption, EnumOption, GzipLevel, IntOption, OptionKind
from aioproducer.config.producer_config import option_kinds
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import BytesSerializer
from aioproducer.testing import FakeCluster
from tests.fakes.producing import background_tasks
from tests.fakes.virtual_loop import ClusterLoop
from tests.nightly import rounds
from tests.produced import values

WORKABLE: dict[str, tuple[int, int]] = {
    "linger_ms": (0, 2_000),
    "batch_size": (0, 300_000),
    "max_request_size": (2_000, 2_000_000),
    "buffer_memory": (65_536, 33_554_432),
    "max_waiting_records": (100, 100_000),
    "max_waiting_bytes": (100_000, 1_000_000),
    "max_block_ms": (20_000, 2**40),
    "delivery_timeout_ms": (20_000, 2**31 - 1),
    "request_timeout_ms": (500, 15_000),
    "close_timeout_ms": (20_000, 2**40),
    "exit_flush_timeout_ms": (0, 2**40),
    "retry_backoff_ms": (0, 1_000),
    "retry_backoff_max_ms": (0, 2_000),
    "reconnect_backoff_ms": (1, 1_000),
    "reconnect_backoff_max_ms": (1, 2_000),
    "socket_connection_setup_timeout_ms": (100, 2**40),
    "socket_connection_setup_timeout_max_ms": (100, 2**40),
    "connections_max_idle_ms": (100, 2**40),
    "metadata_max_age_ms": (50, 2**40),
    "metadata_recovery_rebootstrap_trigger_ms": (5_000, 2**40),
    "retries": (0, 2**31 - 1),
}
"""Ranges in which every record of the smoke test must be acknowledged: a cluster that answers within milliseconds."""

NOT_HERE = {"security_protocol", "transactional_id"}

FEW: dict[type, list[object]] = {
    GzipLevel: [-1, 1, 5, 9],
    BoolOption: [True, False],
    Acks: ["all", -1, "-1", 0, 1, "1"],
}

WRONG = st.sampled_from(["5", b"5", 1.5, math.nan, math.inf, None, (), {}, [1], True, -1, 2**63, -(2**70), object()])


class _Ranged(Protocol):
    minimum: int
    maximum: int


@st.composite
def whole(draw: st.DrawFn, name: str, kind: IntOption) -> int:
    """A number in the range in which things work, one time in ten at the very edges of what is legal."""
    ranged = cast("_Ranged", kind)
    if draw(st.integers(0, 9)) == 9:  # shrinks towards the usual
        return draw(st.sampled_from([ranged.minimum, ranged.minimum + 1, ranged.maximum, ranged.maximum - 1]))
    low, high = WORKABLE.get(name, (ranged.minimum, ranged.maximum))
    return draw(st.integers(low, high))


def legal(name: str, kind: OptionKind) -> st.SearchStrategy[object]:
    match kind:
        case IntOption():
            return whole(name, kind)
        case EnumOption():
            return st.sampled_from(kind.words)
        case GzipLevel() | BoolOption() | Acks():
            return st.sampled_from(FEW[type(kind)])
        case _:
            return _plugins(name)


def _plugins(name: str) -> st.SearchStrategy[object]:
    if name.endswith("_serializer"):
        return st.sampled_from([None, BytesSerializer(), bytes])
    if name == "partitioner":
        return st.sampled_from([None, RoundRobinPartitioner()])
    if name == "client_id":
        return st.sampled_from(["", "me", "ärger", "a" * 300])
    return st.sampled_from([None, (), []])


def wrong(kind: OptionKind) -> st.SearchStrategy[object]:
    """Values past the edge, or of a wrong type."""
    if not isinstance(kind, IntOption):
        return WRONG
    ranged = cast("_Ranged", kind)
    return st.one_of(WRONG, st.sampled_from([ranged.minimum - 1, ranged.maximum + 1]))


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, object]:
    """A few options each, by name; in one of four, one of them is wrong."""
    kinds = {name: kind for name, kind in option_kinds().items() if name not in NOT_HERE}
    chosen = draw(st.lists(st.sampled_from(list(kinds)), unique=True, max_size=12))
    options = {name: draw(legal(name, kinds[name])) for name in chosen}
    if chosen and draw(st.integers(0, 3)) == 3:  # as above
        name = draw(st.sampled_from(chosen))
        options[name] = draw(wrong(kinds[name]))
    return options


def is_workable(options: dict[str, object]) -> bool:
    """Whether each number is in the range in which every record must be acknowledged, and the broker may be used."""
    return not options.get("allowed_brokers") and all(
        low <= value <= high
        for name, (low, high) in WORKABLE.items()
        if isinstance(value := options.get(name, low), int)
    )


RECORDS = 20
LONG_S = 3_000_000.0  # virtual; longer than the longest delivery timeout
MOST_TURNS = 500_000  # of the loop; twenty records and a start need some hundred
PATIENCE_S = 10.0  # virtual; for what cannot work, which asks brokers again and again for as long as it is let
LOTS = int(os.environ.get("AIOPRODUCER_FUZZ_CONFIGURATIONS", rounds(480, nightly=2_000)))

Result = RecordMetadata | BaseException


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def send_all(producer: Producer) -> list[Result]:
    """Twenty records of some hundred bytes, by every verb in turn; what became of each."""
    sending = []
    for number in range(RECORDS):
        send = (producer.send_and_wait, producer.send, producer.enqueue)[number % 3]
        sending.append(asyncio.create_task(to_the_end(send, number)))
        if number % 7 == 0:
            await asyncio.sleep(0.001)
    return await asyncio.gather(*sending, return_exceptions=True)


async def to_the_end(send: object, number: int) -> RecordMetadata:
    given = await send("t", b"%d," % number * 60, key=b"%d" % number if number % 2 else None)  # type: ignore[operator]
    return given if isinstance(given, RecordMetadata) else await given


async def smoke(options: dict[str, object], patience_s: float) -> tuple[list[Result], list[bytes | None]]:
    """Start, send, close; what became of each record, and what is in the log. Nothing may be left behind."""
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        producer = Producer(cluster.bootstrap_servers, **options)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(patience_s):
                await producer.start()
                results = await send_all(producer)
                await producer.flush()
                await producer.close()
        except KafkaError as error:  # of the start: so little time that no broker can answer
            results = [error] * RECORDS
            await producer.close(0)
        except TimeoutError:
            if patience_s == LONG_S:
                raise
            results = [KafkaError("it was not waited for")] * RECORDS
            with contextlib.suppress(KafkaError):
                await producer.close(0)
        assert background_tasks() == {}
        return results, values(cluster, "t")


def check_truth(results: list[Result], log: list[bytes | None]) -> None:
    """Check that acknowledged records are in the log, unwritten ones are not, and nothing is there twice."""
    found = collections.Counter(log)
    for number, result in enumerate(results):
        copies = found[b"%d," % number * 60]
        if isinstance(result, RecordMetadata):
            assert copies >= 1
        else:
            assert isinstance(result, KafkaError)
            if result.outcome is Outcome.NOT_WRITTEN:
                assert copies == 0


def configured(options: dict[str, object]) -> ProducerConfig | ConfigurationError:
    try:
        return ProducerConfig(bootstrap_servers="h:9092", **options)  # type: ignore[arg-type]
    except ConfigurationError as error:
        return error


def check_configuration(options: dict[str, object]) -> str:
    """Refused, or good for twenty records; returns which."""
    files = open_files()
    config = configured(options)
    if isinstance(config, ConfigurationError):
        for problem in config.problems or (config,):
            assert problem.option in {*options, *expected_besides(options)}
            assert str(problem.option) in str(config)
        assert open_files() == files
        return "refused"
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        cast("ClusterLoop", runner.get_loop()).most_turns = MOST_TURNS
        results, log = runner.run(smoke(options, LONG_S if is_workable(options) else PATIENCE_S))
    if config.acks != 0:
        check_truth(results, log)
    if not is_workable(options):
        return "legal"
    assert all(isinstance(result, RecordMetadata) for result in results), results
    assert len(log) == RECORDS
    return "works"


def expected_besides(options: dict[str, object]) -> set[str]:
    """Options that are named although they were not given, because another one does not go with their default."""
    racks = {"client_rack"} if "partitioner_rack_aware" in options else set()
    return (
        {"delivery_timeout_ms", "max_in_flight_requests_per_connection"}
        | {f"{name.removesuffix('_ms')}_max_ms" for name in options}
        | racks
    )


@pytest.mark.parametrize("share", range(8))
@pytest.mark.slow
def test_any_configuration_is_refused_or_works(share: int) -> None:
    """Eight parts of the cases, so that they are counted and timed separately."""
    seen: collections.Counter[str] = collections.Counter()

    @settings(max_examples=LOTS // 8, suppress_health_check=[HealthCheck.too_slow])
    @given(options=configurations(), salt=st.just(share))
    def check(options: dict[str, object], salt: int) -> None:
        del salt
        seen[check_configuration(options)] += 1

    check()
    print("\n", dict(seen))
    assert seen["works"] >= LOTS // 240  # a sixth of what is usual: they are drawn
    assert seen["refused"] >= LOTS // 80
