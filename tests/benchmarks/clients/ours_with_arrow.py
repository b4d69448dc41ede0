"""This producer with many rows a call, as lists of bytes and as Arrow batches, on uvloop."""

from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from time import process_time

import pyarrow as pa
import uvloop

from aioproducer import Producer, ProducerOptions
from tests.benchmarks.clients.ours import configuration
from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text

ROWS = 10_000
"""Rows of a call, as Spark gives them. They fit into the open batches of two partitions with `ROOMY`."""

ROOMY: ProducerOptions = {"batch_size": 1_048_576, "linger_ms": 60_000, "max_request_size": 8_388_608}
"""Nothing is sent while rows are appended."""

Call = Callable[[Producer, str], Awaitable[object]]
"""Sends `ROWS` rows."""


def append_lists(job: Job) -> Outcome:
    """CPU time within `send_many` of bytes."""
    return _append(job, _lists(job, is_keyed=False))


def append_lists_with_keys(job: Job) -> Outcome:
    """The same with a key for each."""
    return _append(job, _lists(job, is_keyed=True))


def append_batches(job: Job) -> Outcome:
    """CPU time within `send_arrow`."""
    return _append(job, _batches(job, is_keyed=False))


def append_batches_with_keys(job: Job) -> Outcome:
    """The same with a column of keys."""
    return _append(job, _batches(job, is_keyed=True))


def send_batches(job: Job) -> Outcome:
    """`send_arrow` in a loop, then `flush`: CPU time of the whole process."""
    calls, warmup_calls = job.records // ROWS, job.warmup_records // ROWS + 1

    async def main() -> dict[str, float]:
        send = _batches(job, is_keyed=False)
        async with Producer(job.bootstrap_servers, **configuration(job)) as producer:
            for _ in range(warmup_calls):
                await send(producer, job.topic)
            await producer.flush()
            stopwatch = Stopwatch()
            for _ in range(calls):
                await send(producer, job.topic)
            await producer.flush()
            return stopwatch.figures(calls * ROWS)

    return Outcome((warmup_calls + calls) * ROWS, uvloop.run(main()), as_text(dict(configuration(job))))


def _append(job: Job, call: Call) -> Outcome:
    """Measure calls alone: what they appended is sent and acknowledged before the next."""
    calls, warmup_calls = job.records // ROWS, 10

    async def main() -> dict[str, float]:
        spent_s = 0.0
        async with Producer(job.bootstrap_servers, **ROOMY) as producer:
            for number in range(warmup_calls + calls):
                start_s = process_time()
                await call(producer, job.topic)
                spent_s += process_time() - start_s if number >= warmup_calls else 0.0
                await producer.flush()
        return {"cpu_us_per_record": spent_s / (calls * ROWS) * 1e6}

    return Outcome((warmup_calls + calls) * ROWS, uvloop.run(main()), as_text(dict(ROOMY)))


def _columns(job: Job) -> tuple[list[bytes], list[bytes]]:
    values = [b"%0*d" % (job.value_bytes, number) for number in range(ROWS)]
    return values, list(islice(cycle([b"customer-%d" % number for number in range(1_000)]), ROWS))


def _lists(job: Job, *, is_keyed: bool) -> Call:
    values, keys = _columns(job)

    async def send(producer: Producer, topic: str) -> object:
        return await producer.send_many(topic, values, keys=keys if is_keyed else None)

    return send


def _batches(job: Job, *, is_keyed: bool) -> Call:
    values, keys = _columns(job)
    batch = pa.record_batch({"value": values, "key": keys} if is_keyed else {"value": values})

    async def send(producer: Producer, topic: str) -> object:
        return await producer.send_arrow(topic, batch)

    return send
