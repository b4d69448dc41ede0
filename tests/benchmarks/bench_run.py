"""`Bench`: runs clients one after another in new processes, and compares their counts with the broker's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from tests.benchmarks.brokers import BrokerUnderTest, fresh_topics, records_in
from tests.benchmarks.job import Job, Outcome
from tests.benchmarks.report import Row, figures_text
from tests.benchmarks.worker import WorkerError, running_worker


@dataclass(frozen=True, slots=True)
class Contestant:
    """A client with one variant of the settings, and its job without address and topic."""

    client: str
    variant: str
    job: Job
    stall_s: float = 0.0
    """Seconds for which the broker is stopped during the job, at least."""

    offers_all_to_stalled: bool = False
    """Whether the broker stays stopped until the worker has offered all its records."""


@dataclass(slots=True)
class Bench:
    broker: BrokerUnderTest
    say: Callable[[str], None]
    """Shows progress."""

    is_quick: bool = False
    rounds: int = 5
    java_jars: str = ""
    """Folder of the Java producer's class path; empty if there is none."""

    clients: Sequence[str] = ()
    """Only these, if any are named."""

    failures: list[str] = field(default_factory=list)
    """Clients that failed or counted other records than the broker."""

    _topic_numbers: "count[int]" = field(default_factory=count)

    def wants(self, client: str) -> bool:
        return not self.clients or client in self.clients

    def size(self, full: int, quick: int) -> int:
        """Return the number for a full run, or for a quick run that only shows that everything works."""
        return quick if self.is_quick else full

    def settings(self) -> dict[str, str]:
        job = Job(work="")
        return {
            "value": f"{job.value_bytes} bytes, no key",
            "acks": "all",
            "idempotence": "on",
            "linger": f"{job.linger_ms} ms",
            "partitions": str(job.partitions),
            "rounds": str(self.rounds),
        }

    async def warm_up(self, *jobs: Job) -> None:
        """Do unmeasured jobs, so that the first client does not meet a cold broker; failures are kept for the end."""
        for job in jobs:
            await self._try(Contestant(job.work, "warm-up", job), "before the first round")

    async def measure(self, contestants: Sequence[Contestant], *, rounds: int = 0) -> Sequence[Row]:
        """Run all wanted contestants once per round, and return the rows of those that were measured.

        Each round begins with the next contestant. 0 rounds: as many as the benchmark has.
        """
        wanted = [contestant for contestant in contestants if self.wants(contestant.client)]
        rows = {contestant: Row(contestant.client, contestant.variant) for contestant in wanted}
        rounds = rounds or self.rounds
        for number in range(rounds):
            first = number % max(1, len(wanted))
            for contestant in (*wanted[first:], *wanted[:first]):
                outcome = await self._try(contestant, f"round {number + 1}/{rounds}")
                if outcome is not None:
                    rows[contestant].add(outcome.figures)
                    rows[contestant].configuration.update(outcome.configuration)
        return [row for row in rows.values() if row.rounds]

    async def _try(self, contestant: Contestant, round_name: str) -> Outcome | None:
        """Run one contestant; a failure is kept for the end, and the others still run."""
        name = f"{contestant.client}, {contestant.variant}"
        try:
            outcome = await (self._run_stalled(contestant) if contestant.stall_s else self._run(contestant.job))
        except WorkerError as failed:
            self.failures.append(f"{name}: {failed}")
            self.say(f"{round_name}: {self.failures[-1]}")
            return None
        self.say(f"{round_name}: {name}: {figures_text(outcome.figures)}")
        return outcome

    async def _run(self, job: Job) -> Outcome:
        """Run a job on new topics, and compare its count with the end offsets."""
        async with self._on_fresh_topics(job) as placed, running_worker(placed) as worker:
            outcome = await worker.outcome()
            await self._check(placed, outcome)
        return outcome

    async def _run_stalled(self, contestant: Contestant) -> Outcome:
        """Run a job whose broker is stopped as soon as the worker is ready."""
        if self.broker.stall is None or self.broker.resume is None:
            raise WorkerError(f"{self.broker.name} cannot be stopped from here")
        async with self._on_fresh_topics(contestant.job) as placed, running_worker(placed) as worker:
            await worker.wait_until_ready()
            self.broker.stall()
            try:
                worker.go_on()
                await asyncio.sleep(contestant.stall_s)
                if contestant.offers_all_to_stalled:
                    await worker.wait_until_ready()
                    worker.go_on()
            finally:
                self.broker.resume()
            outcome = await worker.outcome()
            await self._check(placed, outcome)
        return outcome

    @asynccontextmanager
    async def _on_fresh_topics(self, job: Job) -> AsyncIterator[Job]:
        """Yield the job with address and topic; its topics exist."""
        topic = f"bench-{next(self._topic_numbers)}"
        placed = replace(job, bootstrap_servers=self.broker.bootstrap_servers, topic=topic, java_jars=self.java_jars)
        async with fresh_topics(placed.bootstrap_servers, placed.topic_names, job.partitions):
            yield placed

    async def _check(self, job: Job, outcome: Outcome) -> None:
        stored = await records_in(job.bootstrap_servers, job.topic_names, job.partitions)
        if stored != outcome.acknowledged:
            raise WorkerError(f"{job.work} counts {outcome.acknowledged:,} records, the broker has {stored:,}")
