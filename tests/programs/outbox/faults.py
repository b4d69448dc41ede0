"""What happens to relays, databases and brokers: each fault takes some seconds, and leaves no relay behind."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Final, TypeAlias

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient
from sqlalchemy import text

from tests.outbox.postgres import Postgres
from tests.programs.chaos.proxy import loses_one_way, pass_on
from tests.programs.outbox.stage import LEASE_S, TOPIC, Stage

Fault: TypeAlias = Callable[[Stage, int], Coroutine[object, object, None]]
"""Takes the number of the round."""
STEPS: Final = 26
"""Of a relay, from its start through the first batches."""
EXPIRED_S: Final = 75.0
"""Until forgetful brokers have forgotten a transactional id and the offsets of a group."""
CUT: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
)


async def die_at_step(stage: Stage, step: int) -> None:
    process = await stage.start_relay(step)
    try:
        await asyncio.wait_for(process.wait(), 25)
    except TimeoutError:
        print(f"step {step} was not reached", flush=True)
    await stage.kill_relays()


async def die_at_random(stage: Stage, _round: int) -> None:
    await stage.start_relay()
    await asyncio.sleep(1.5 + stage.random.random() * 3)
    await stage.kill_relays()


async def sleep_past_the_lease(stage: Stage, _round: int) -> None:
    """Stop a relay for longer than its lease and its transaction may last; it goes on beside its successor."""
    first = await stage.start_relay()
    await asyncio.sleep(2 + stage.random.random())
    first.send_signal(signal.SIGSTOP)
    await stage.start_relay()
    await asyncio.sleep(LEASE_S + 4)
    first.send_signal(signal.SIGCONT)
    await asyncio.sleep(2)
    await stage.kill_relays()


async def two_at_once(stage: Stage, _round: int) -> None:
    await asyncio.gather(stage.start_relay(), stage.start_relay())
    await asyncio.sleep(2 + stage.random.random())
    await stage.kill_relays()


async def kill_database(stage: Stage, _round: int) -> None:
    if stage.server is not None:
        await stage.start_relay()
        await asyncio.sleep(2 + stage.random.random())
        await asyncio.to_thread(stage.server.kill)
        await asyncio.to_thread(stage.server.start)
        await asyncio.sleep(2)
        await stage.kill_relays()


async def cut_database(stage: Stage, _round: int) -> None:
    """Have PostgreSQL end all connections, of writers too, in the midst of what they do."""
    if isinstance(stage.server, Postgres):
        await stage.start_relay()
        await asyncio.sleep(1.5)
        for _ in range(5):
            await asyncio.sleep(stage.random.random() / 2)
            connection = await asyncpg.connect(f"postgresql://{stage.server.dsn}")  # the pool's may have been cut
            await connection.execute(CUT)
            await connection.close()
        await asyncio.sleep(1)
        await stage.kill_relays()


async def kill_broker(stage: Stage, _round: int) -> None:
    await stage.start_relay()
    await asyncio.sleep(2 + stage.random.random())
    node = stage.random.choice(stage.kafka.node_ids)
    await stage.kafka.kill(node)
    await asyncio.sleep(stage.random.random() * 3)
    await stage.kafka.restart(node)
    await asyncio.sleep(3)
    await stage.kill_relays()


async def reset_connections(stage: Stage, _round: int) -> None:
    """Reset the relay's connections to the broker, again and again."""
    await stage.start_relay()
    await asyncio.sleep(1.5)
    for _ in range(8):
        await asyncio.sleep(stage.random.random() / 2)
        for link in stage.links:
            link.reset_all()
    await stage.kill_relays()


async def lose_one_way(stage: Stage, _round: int) -> None:
    """Lose all requests, or all responses, for up to longer than a transaction may be open."""
    await stage.start_relay()
    await asyncio.sleep(1.5)
    is_of_answers = stage.random.random() < 0.5
    for link in stage.links:
        link.trouble = loses_one_way(answers=is_of_answers)
    await asyncio.sleep(stage.random.uniform(0.5, 8))
    for link in stage.links:
        link.trouble = pass_on
    await asyncio.sleep(2)
    await stage.kill_relays()


async def set_clock_back(stage: Stage, _round: int) -> None:
    """Kill a relay whose lease seems to last for another hour, since the clock of the database was set back."""
    await stage.start_relay()
    await asyncio.sleep(2)
    await stage.kill_relays()
    async with stage.engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET lease_until = lease_until + 3600000"))
    await stage.start_relay()
    await asyncio.sleep(LEASE_S + 3)
    async with stage.engine.connect() as connection:
        works = text("SELECT count(*) FROM kafka_outbox_relay WHERE owner IS NOT NULL AND trouble IS NULL")
        assert (await connection.execute(works)).scalar_one(), "no relay has taken over"
    await stage.kill_relays()


async def remake_topic(stage: Stage, _round: int) -> None:
    """Delete the topic under a relay, which makes it again; a batch in doubt is sent again, as it says."""
    await stage.start_relay()
    await asyncio.sleep(1.5 + stage.random.random())
    if stage.random.random() < 0.5:
        await stage.kill_relays()
    admin = AIOKafkaAdminClient(bootstrap_servers=stage.kafka.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([TOPIC])
    finally:
        await admin.close()
    stage.unknown |= {*stage.committed}  # some of these were in the topic
    stage.committed.clear()
    await stage.start_relay()
    await asyncio.sleep(LEASE_S + 5)
    await stage.kill_relays()
    await stage.decide()


async def forget(stage: Stage, _round: int) -> None:
    """Let the transactional id and the position of a relay that has ended expire."""
    process = await stage.start_relay()
    await asyncio.sleep(3)
    process.send_signal(signal.SIGINT)
    await process.wait()
    await asyncio.sleep(EXPIRED_S)
    await stage.start_relay()
    await asyncio.sleep(3)
    await stage.kill_relays()


MIXED: Final[tuple[Fault, ...]] = (
    die_at_random,
    two_at_once,
    sleep_past_the_lease,
    kill_database,
    cut_database,
    kill_broker,
    reset_connections,
    lose_one_way,
    set_clock_back,
    remake_topic,
)
FAULTS: Final[Mapping[str, Fault]] = {each.__name__: each for each in (die_at_step, *MIXED, forget)}
"""Faults by name; one that forgets needs brokers that forget."""
