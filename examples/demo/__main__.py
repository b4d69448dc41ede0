"""The command line of the demo: `nox -s demo -- OPTIONS`, or `python -m examples.demo OPTIONS` in the clone."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine

import structlog
from aiokafka.errors import KafkaError as ReaderError
from rich.console import Console
from rich.text import Text

from aioproducer import KafkaError
from aioproducer.testing import FakeCluster
from aioproducer.testing.kafka import BrokerStartError, KafkaCluster, MissingToolError
from examples.demo.cluster import FAILOVER_DELAY_S, DemoCluster, TopicNotMadeError
from examples.demo.flights import FLIGHTS
from examples.demo.flights_show import FlightsShow
from examples.demo.screen import Screen
from examples.demo.transfers_show import TransfersShow, WorkerEndedError

PACED_S = 24.0
"""How long sending takes by default."""

TRANSFERS = 3_000
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
EXPECTED = (KafkaError, ReaderError, BrokerStartError, TopicNotMadeError, WorkerEndedError, OSError)
"""Exceptions that end a demo without being a bug."""


def main() -> int:
    """Play the demo; returns 0 only if every check held."""
    options = _options()
    console = Console()
    _silence_logs()
    try:
        lines = asyncio.run(_until_signal(_play(options, console)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return EXIT_INTERRUPTED
    except MissingToolError as missing:
        print(*missing.missing, sep="\n", file=sys.stderr)
        return EXIT_USAGE
    except Exception as raised:
        cause = _first_cause(raised)
        if not isinstance(cause, EXPECTED):
            raise
        print(f"demo: {cause}", file=sys.stderr)
        return EXIT_FAILED
    holds = lines[0].startswith("PASSED")
    console.print()
    console.print(Text(lines[0], "bold green" if holds else "bold red"), soft_wrap=True)
    for line in lines[1:]:
        console.print(Text(line), soft_wrap=True)
    return 0 if holds else EXIT_FAILED


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nox -s demo --",
        description=f"Stream {FLIGHTS:,} real flights while a broker dies, and read every one back. "
        "The exit code is 0 only if all came back.",
    )
    parser.add_argument("--kafka", metavar="VERSION", help="on three nodes of real Apache Kafka, such as 4.4.0")
    parser.add_argument("--speed", default="paced", help="paced (about 30 s, the default), max, or records per second")
    parser.add_argument("--records", type=int, help=f"send only this many; default {FLIGHTS} or {TRANSFERS}")
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="transfer money between accounts instead, while a worker and a broker are killed, and add it up",
    )
    options = parser.parse_args()
    default, least, most = (TRANSFERS, 300, 100_000) if options.transactions else (FLIGHTS, 1_000, FLIGHTS)
    options.records = default if options.records is None else options.records
    if not least <= options.records <= most:
        parser.error(f"--records {options.records}: must be {least} to {most}")
    if options.speed == "paced":
        options.speed = options.records / PACED_S
    elif options.speed == "max":
        options.speed = None
    elif options.speed.isdecimal() and int(options.speed) > 0:
        options.speed = float(options.speed)
    else:
        parser.error(f"--speed {options.speed!r}: must be paced, max, or a number of records per second")
    return options


async def _play(options: argparse.Namespace, console: Console) -> list[str]:
    """Play the chosen demo; returns its verdict, whose first line says whether it passed."""
    cluster: DemoCluster
    if options.kafka is None:
        title = "3 embedded brokers"
        cluster = FakeCluster(3, min_insync_replicas=2, failover_delay_s=FAILOVER_DELAY_S)
    else:
        title = f"Apache Kafka {options.kafka}, 3 nodes"
        cluster = KafkaCluster(options.kafka, nodes=3)
    with Screen(console) as screen:
        console.print(f"aioproducer demo: {options.records:,} records, {title}", highlight=False)
        show = (TransfersShow if options.transactions else FlightsShow)(options.records, options.speed, screen)
        return await show.run(cluster)


async def _until_signal(play: Coroutine[object, object, list[str]]) -> list[str]:
    """Run the demo in a task that the first Ctrl-C or SIGTERM cancels."""
    loop = asyncio.get_running_loop()
    playing = asyncio.ensure_future(play)

    def cancel() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        playing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel)
    return await playing


def _silence_logs() -> None:
    """Log nothing: both clients report the death of a broker, which is on the screen."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for library in ("aiokafka", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def _first_cause(raised: BaseException) -> BaseException:
    """Return the first exception inside the groups of task groups."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return raised


if __name__ == "__main__":
    sys.exit(main())
