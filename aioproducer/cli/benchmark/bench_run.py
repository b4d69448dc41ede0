"""`Bench`: runs clients one after another in fresh processes, and checks what each says it had acknowledged."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from aioproducer.cli.benchmark.brokers import BrokerUnderTest
from aioproducer.cli.benchmark.figures import Row, figures_text
from aioproducer.cli.benchmark.job import Job, Outcome
from aioproducer.cli.benchmark.sizes import Sizes
from aioproducer.cli.benchmark.steadiness import MAX_ATTEMPTS, MAX_MOVEMENT, calmest, is_steady, movement
from aioproducer.cli.benchmark.topics import fresh_topic, records_in
from aioproducer.cli.benchmark.worker_process import WorkerError, running_worker

OURS = "aioproducer"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A client under one variant of the settings, and its job; address and topic come with the run."""

    client: str
    variant: str
    job: Job
    stall_s: float = 0.0
    """How long the broker stands still meanwhile, at least; 0: not at all."""

    offers_all_to_stalled: bool = False
    """Whether the broker stands still until the worker has offered everything, which it then says."""


@dataclass(slots=True)
class Bench:
    """What scenarios measure with."""

    broker: BrokerUnderTest
    sizes: Sizes
    say: Callable[[str], None]
    """Shows progress."""

    java_jars: str = ""
    """Folder of the Java producer's class path; empty: no Java."""

    clients: Sequence[str] = ()
    """Only these, if any are named."""

    failures: list[str] = field(default_factory=list)
    """Clients that failed or counted otherwise than the broker, in words."""

    _topic_numbers: "count[int]" = field(default_factory=count)

    def wants(self, client: str) -> bool:
        """Whether a client is to be measured."""
        return not self.clients or client in self.clients

    def settings(self) -> dict[str, str]:
        """What all runs have in common."""
        job = Job(work="")
        return {
            "value": f"{job.value_bytes} bytes, no key",
            "acks": "all",
            "idempotence": "on",
            "linger": f"{job.linger_ms} ms",
            "partitions": str(job.partitions),
            "rounds": str(self.sizes.rounds),
        }

    async def warm_up_broker(self) -> None:
        """Send what nobody measures, so that the first client does not meet a cold broker.

        Raises:
            WorkerError: the broker refused it.
        """
        records = self.sizes.broker_warmup_records
        await self._run(Job(work="raw_socket.enqueue", records=records))
        await self._run(Job(work="ours.enqueue", records=records // 10))  # the checks of idempotence are hot as well

    async def warm_up(self, job: Job) -> None:
        """Have the broker do what nobody measures, and one scenario alone has it do; a failure is kept for the end."""
        await self._try(Contestant("raw socket", "warm-up", job), "before the first round")

    async def measure(self, contestants: Sequence[Contestant], *, rounds: int = 0) -> tuple[Sequence[Row], list[str]]:
        """Run all contestants in turn, round by round, again if the machine moved too much meanwhile.

        Args:
            contestants: those not wanted are left out.
            rounds: how many; as `sizes` says unless given.

        Returns:
            Their rows, and notes about repetitions.
        """
        wanted = [contestant for contestant in contestants if self.wants(contestant.client)]
        attempts: list[Sequence[Row]] = []
        notes: list[str] = []
        while len(attempts) < MAX_ATTEMPTS:
            attempts.append(await self._rounds(wanted, rounds or self.sizes.rounds))
            if is_steady(attempts[-1]):
                break
            notes.append(
                f"attempt {len(attempts)}: the raw socket moved by {movement(attempts[-1]):.0%} between rounds"
            )
            self.say(f"{notes[-1]}, more than {MAX_MOVEMENT:.0%}")
        return calmest(attempts), notes

    async def _run(self, job: Job) -> Outcome:
        """Let a worker do a job on a topic of its own, and check its count against the end offsets.

        Raises:
            WorkerError: it failed, or says otherwise than the broker.
        """
        async with self._on_fresh_topic(job) as placed, running_worker(placed) as worker:
            outcome = await worker.outcome()
            await self._check(placed, outcome)
        return outcome

    async def _run_stalled(self, contestant: Contestant) -> Outcome:
        """The same, with the broker standing still from when the worker is ready.

        Raises:
            WorkerError: as `_run`; or this broker is not ours to stop.
        """
        if self.broker.stall is None or self.broker.resume is None:
            raise WorkerError(f"{self.broker.name} is not ours to stop")
        async with self._on_fresh_topic(contestant.job) as placed, running_worker(placed) as worker:
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
    async def _on_fresh_topic(self, job: Job) -> AsyncIterator[Job]:
        """The job with address and topic filled in."""
        topic = f"bench-{next(self._topic_numbers)}"
        placed = replace(job, bootstrap_servers=self.broker.bootstrap_servers, topic=topic, java_jars=self.java_jars)
        async with fresh_topic(placed.bootstrap_servers, topic, job.partitions):
            yield placed

    async def _check(self, job: Job, outcome: Outcome) -> None:
        """Compare a worker's count with the broker's.

        Raises:
            WorkerError: they differ.
        """
        stored = await records_in(job.bootstrap_servers, job.topic, job.partitions)
        if stored != outcome.acknowledged:
            raise WorkerError(f"{job.work} counts {outcome.acknowledged:,} records, the broker has {stored:,}")

    async def _rounds(self, contestants: Sequence[Contestant], rounds: int) -> Sequence[Row]:
        """One attempt: every contestant once a round, each round beginning with another one."""
        rows = {contestant: Row(contestant.client, contestant.variant) for contestant in contestants}
        for number in range(rounds):
            first = number % len(contestants)
            for contestant in (*contestants[first:], *contestants[:first]):
                outcome = await self._try(contestant, f"round {number + 1}/{rounds}")
                if outcome is not None:
                    rows[contestant].add(outcome.figures)
                    rows[contestant].configuration.update(outcome.configuration)
        return [row for row in rows.values() if row.rounds]

    async def _try(self, contestant: Contestant, round_name: str) -> Outcome | None:
        """Run one contestant; a failure is kept for the end, and the others go on."""
        who = f"{contestant.client}, {contestant.variant}"
        try:
            outcome = await (self._run_stalled(contestant) if contestant.stall_s else self._run(contestant.job))
        except WorkerError as failed:
            self.failures.append(f"{who}: {failed}")
            self.say(f"{round_name}: {self.failures[-1]}")
            return None
        self.say(f"{round_name}: {who}: {figures_text(outcome.figures)}")
        return outcome
