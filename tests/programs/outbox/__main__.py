"""Relays of an outbox are killed, stopped and run beside each other, on a real database and real Kafka.

usage: nox -s outbox -- [--database postgres|mariadb|sqlite] [--kafka 4.4.0] [--rounds 40] [--seed 1] [--shards 3]
    [--fault die_at_random]

With --shards, each relay divides the rows into another number of shards, of up to so many.

Writers commit out of the order of their ids, and roll back. At the end, each row of a committed transaction must be in
Kafka once for readers of committed records, none of one that was rolled back, and those of a key in order.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.programs.outbox.faults import FAULTS, MIXED, STEPS, Fault, die_at_step
from tests.programs.outbox.stage import KEYS, SERVERS, Stage


async def main(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(arguments, Path(folder))
        try:
            return await run(stage, arguments)
        finally:
            await stage.close()


async def run(stage: Stage, arguments: argparse.Namespace) -> int:
    await stage.open()
    writers = [asyncio.create_task(stage.write(key)) for key in range(KEYS)]
    for fault, number in plan(stage, arguments):
        print(f"{fault.__name__} {number}; {len(stage.committed):,} rows committed", flush=True)
        await fault(stage, number)
    took_s = await stage.drain()
    await asyncio.gather(*writers)
    took_s += await stage.drain()  # what the writers committed meanwhile
    wrong = stage.verdict(await stage.read())
    print(f"{arguments.database}, Kafka {arguments.kafka}: {len(stage.committed):,} rows, drained in {took_s:.1f} s")
    print(wrong)
    return any(wrong.values())


def plan(stage: Stage, arguments: argparse.Namespace) -> list[tuple[Fault, int]]:
    """Return so many rounds of one fault, or of all: the steps of a relay, and the others in turn, shuffled."""
    if arguments.fault is not None:
        return [(FAULTS[arguments.fault], number) for number in range(arguments.rounds)]
    mixed: list[tuple[Fault, int]] = [(die_at_step, step) for step in range(STEPS)]
    mixed += [(MIXED[number % len(MIXED)], number) for number in range(arguments.rounds)]
    stage.random.shuffle(mixed)
    return mixed[: arguments.rounds]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*SERVERS, "sqlite"], default="postgres")
    parser.add_argument("--kafka", default="4.4.0")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    sys.exit(asyncio.run(main(parser.parse_args())))
