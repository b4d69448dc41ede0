"""`MockProducer`, on uvloop: what unit tests pay."""

import uvloop

from aioproducer.testing import MockProducer
from tests.benchmarks.job import Job, Outcome, Stopwatch


def send(job: Job) -> Outcome:
    """`send` in a loop, then `flush`."""

    async def main() -> dict[str, float]:
        async with MockProducer(topics={job.topic: job.partitions}) as producer:
            for _ in range(job.warmup_records):
                producer.send(job.topic, job.value)
            await producer.flush()
            producer.clear()
            topic, value = job.topic, job.value
            stopwatch = Stopwatch()
            for _ in range(job.records):
                producer.send(topic, value)
            await producer.flush()
            return stopwatch.figures(job.records)

    return Outcome(0, uvloop.run(main()))  # the broker gets none
