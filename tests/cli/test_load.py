"""`aioproducer load` without Spark: Parquet files into a topic, as users run it."""

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing import ApiKey, FakeCluster
from tests.cli.commands import PROGRAM, TIMEOUT_S, Ended, arrival, ended, refused, run, started, values

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Return a file of 1,000 orders in four row groups; each seventh has no note."""
    numbers = range(1000)
    table = pa.table(
        {
            "id": pa.array(numbers),
            "customer": pa.array([f"c{number % 9}" for number in numbers]),
            "note": pa.array([None if number % 7 == 0 else f'"{number}"' for number in numbers]),
        }
    )
    file = tmp_path / "orders.parquet"
    pq.write_table(table, file, row_group_size=250)
    return file


async def load(cluster: FakeCluster, *arguments: str | Path) -> Ended:
    """Run the command with a topic t."""
    return await run("load", *map(str, arguments), "--topic", "t", "-b", cluster.bootstrap_servers)


async def test_columns_become_keys_and_values(orders: Path) -> None:
    """Anything but bytes and text as its text, in the order of the file; the last line counts them."""
    async with FakeCluster(topics={"t": 1}) as cluster:
        done = await load(cluster, orders, "--key", "customer", "--value", "id")

        assert (done.code, done.output) == (0, "")
        assert done.errors[-1].startswith("1,000 records delivered to t in ")
        assert values(cluster) == [str(number).encode() for number in range(1000)]
        assert [record.key for record in cluster.records("t", 0)][:2] == [b"c0", b"c1"]


async def test_json_is_the_row_without_its_nulls(orders: Path) -> None:
    """With the file found in its folder, and the report in a file."""
    (orders.parent / "_SUCCESS.parquet").write_bytes(b"")  # hidden, as Spark's marks are
    report = orders.parent / "report.json"
    async with FakeCluster(topics={"t": 1}) as cluster:
        done = await load(cluster, orders.parent, "--json", "--report", report)

        assert done.code == 0
        assert [json.loads(value or b"") for value in values(cluster)[:2]] == [
            {"id": 0, "customer": "c0"},
            {"id": 1, "customer": "c1", "note": '"1"'},
        ]
    written = json.loads(report.read_text("utf-8"))
    assert (written["outcome"], written["rows"], written["files"], written["row_groups"]) == ("done", 1000, 1, 4)


async def test_finished_run_is_not_sent_again(orders: Path) -> None:
    """Exactly once: the same run id does nothing, another one sends, and the sink can be looked at and forgotten."""
    once = ("--value", "id", "--exactly-once", "--sink", "s")
    async with FakeCluster(topics={"t": 1}) as cluster:
        first = await load(cluster, orders, *once, "--run-id", "monday")
        again = await load(cluster, orders, *once, "--run-id", "monday")
        other = await load(cluster, orders, *once, "--run-id", "tuesday")
        listed = await run("txn", "list", "--sink", "s", "-b", cluster.bootstrap_servers)
        resolved = await run("txn", "resolve", "--sink", "s", "-b", cluster.bootstrap_servers)
        forgotten = await run("txn", "reset", "--sink", "s", "-b", cluster.bootstrap_servers)
        afterwards = await run("txn", "list", "--sink", "s", "--json", "-b", cluster.bootstrap_servers)

        assert [each.code for each in (first, again, other, listed, resolved, forgotten, afterwards)] == [0] * 7
        assert again.errors == ["run monday of sink s was finished before: nothing was sent"]
        assert len(values(cluster)) == 2000
    assert listed.output.splitlines()[0] == "sink s: last decided is batch 1 of [run tuesday]: finished; kept by t"
    assert resolved.output == "sink s: batch 1 of [run tuesday] is committed; 0 open transactions ended\n"
    assert forgotten.output == "sink s: batch 1 of [run tuesday] is committed, and forgotten\n"
    assert json.loads(afterwards.output)["batch"] is None


async def test_interrupted_transaction_leaves_nothing(orders: Path) -> None:
    """SIGTERM in the middle; a later run under the same sink is not held up."""
    once = ("--topic", "t", "--value", "id", "--exactly-once", "--sink", "s")
    async with FakeCluster(topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with started("load", str(orders), *once, "--rate", "50", "-b", servers) as process:
            await arrival(cluster, 1)
            process.send_signal(signal.SIGTERM)
            stopped = await ended(process)
        listed = await run("txn", "list", "--state", "Ongoing", "-b", servers)

    assert stopped.code == 128 + signal.SIGTERM
    assert stopped.errors == ["interrupted: the transaction is aborted, nothing of the input is visible in t"]
    assert listed.output == "no transactions\n"


async def test_interrupted_load_says_how_far_it_got(orders: Path) -> None:
    """Ctrl-C in the middle, without a transaction."""
    async with FakeCluster(topics={"t": 1}) as cluster:
        arguments = (str(orders), "--topic", "t", "--value", "id", "--rate", "50", "-b", cluster.bootstrap_servers)
        async with started("load", *arguments) as process:
            await arrival(cluster, 1)
            process.send_signal(signal.SIGINT)
            stopped = await ended(process)

    assert stopped.code == 128 + signal.SIGINT
    left = r"(t has [\d,]+ records? of the input(, and perhaps more)?|a part of the input may be in t)"
    assert re.fullmatch(f"interrupted after 250 of 1,000 rows were read: {left}", stopped.errors[-1])


async def test_load_interrupted_while_connecting_sent_nothing(orders: Path) -> None:
    """No broker has answered by then; the report says it, too."""
    report = orders.parent / "report.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = (str(orders), "--topic", "t", "--value", "id", "-b", server, "--report", str(report))
        async with started("load", *arguments) as process:
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                process.send_signal(signal.SIGTERM)
                stopped = await ended(process)

    assert stopped.code == 128 + signal.SIGTERM
    assert [line for line in stopped.errors if line.startswith("interrupted")] == ["interrupted: nothing was sent"]
    written = json.loads(report.read_text("utf-8"))
    assert (written["outcome"], written["rows"]) == ("interrupted", 0)


def test_report_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """Before anything is read or sent."""
    done = refused("load", str(tmp_path / "a"), "--topic", "t", "--report", str(tmp_path))

    assert (done.code, done.errors) == (2, [f"--report {tmp_path}: Is a directory"])


def read_terminal(terminal: int) -> str:
    """Return what is written to a terminal until the last process has closed it."""
    chunks = []
    with contextlib.suppress(OSError):  # so Linux says that it is closed
        while chunk := os.read(terminal, 65_536):
            chunks.append(chunk)
    os.close(terminal)
    return b"".join(chunks).decode()


async def test_progress_is_shown_on_a_terminal(orders: Path) -> None:
    """Rows that are read, of all, and their rate."""
    terminal, stderr = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "24"}
    async with FakeCluster(topics={"t": 1}) as cluster:
        arguments = ["load", str(orders), "--topic", "t", "--value", "id", "--rate", "500"]
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *arguments, "-b", cluster.bootstrap_servers, stderr=stderr, env=environment
        )
        os.close(stderr)
        shown = await asyncio.wait_for(asyncio.to_thread(read_terminal, terminal), TIMEOUT_S)
        code = await process.wait()

    assert code == 0
    assert re.search(r"[1-9]\d* of 1,000\W+[\d,]+/s", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)), shown


async def test_dry_run_asks_no_broker(orders: Path) -> None:
    """It reads all, and sends nothing."""
    done = await run("load", str(orders), "--topic", "t", "--json", "--dry-run", "-b", "127.0.0.1:1")

    assert done.code == 0
    assert done.errors[-1].startswith("1,000 records would go to t in ")


@pytest.fixture
def bad_inputs(orders: Path) -> Path:
    """Return a folder with a file that is text, and an empty folder."""
    (orders.parent / "text.parquet").write_text("id,customer\n" * 9, "utf-8")
    (orders.parent / "empty").mkdir()
    return orders.parent


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["nowhere.parquet", "--json"], "nowhere.parquet: no such file"),
        (["text.parquet", "--json"], "text.parquet cannot be read as Parquet: "),
        (["empty", "--json"], "empty: no file in this folder ends in .parquet, .parq, .pq"),
        (["orders.parquet"], "orders.parquet has no column 'value'; it has id, customer, note; --json makes"),
        (["orders.parquet", "--key", "nr", "--json"], "orders.parquet has no column 'nr'; it has id, customer, note"),
    ],
)
async def test_bad_input_is_one_line(bad_inputs: Path, arguments: list[str], said: str) -> None:
    """And nothing is sent: exit code 2, as of `produce`, before any broker is asked."""
    file, *options = arguments
    done = await run("load", str(bad_inputs / file), *options, "--topic", "t", "-b", "127.0.0.1:1")

    assert (done.code, len(done.errors)) == (2, 1)
    assert done.errors[0].startswith(f"{bad_inputs}/{said}")


async def test_contradictions_are_usage_errors() -> None:
    """One line each, exit code 2."""
    done = await run(
        "load", "a", "--topic", "t", "--json", "--value", "v", "--sql", "q", "--run-id", "1", "--rate", "0"
    )

    assert (done.code, done.errors) == (
        2,
        [
            "--value and --json exclude each other: --json makes the value from all columns",
            "--rate 0: must be 1 or more",
            "--sql needs --master: it is for Spark",
            "--run-id needs --exactly-once",
        ],
    )


async def test_unknown_property_is_a_usage_error() -> None:
    """With the near name."""
    done = await run("load", "a", "--topic", "t", "-X", "lingger.ms=3")

    assert done.code == 2
    assert "did you mean linger.ms?" in done.errors[0]


@pytest.mark.parametrize(
    "name, instead",
    [
        ("transactional.id", "--exactly-once and --sink"),
        ("transactional_id", "--exactly-once and --sink"),
        ("bootstrap_servers", "--bootstrap-server"),
    ],
)
def test_property_with_an_argument_of_its_own_is_refused(name: str, instead: str) -> None:
    """In either spelling: a transaction that nothing commits would take all rows, and hide those that follow."""
    done = refused("load", "a", "--topic", "t", "-X", f"{name}=x")

    assert (done.code, done.errors) == (2, [f"--property {name}: use {instead}"])


async def test_property_in_pythons_spelling_has_its_effect(orders: Path) -> None:
    """In the place of a default, and of one in the file; of the file's transaction nothing is used."""
    config = orders.parent / "client.properties"
    config.write_text("transactional_id=orders\nbatch.size=-1\n", "utf-8")
    async with FakeCluster(topics={"t": 1}) as cluster:
        given = ("-X", "client_id=mine", "-X", "batch_size=1000", "--config", config)
        done = await load(cluster, orders, "--value", "id", *given)
        names = {request.client_id for request in cluster.requests if request.api is ApiKey.PRODUCE}
        batches = sum(request.api is ApiKey.PRODUCE for request in cluster.requests)

        assert done.code == 0
        assert len(cluster.committed_records("t", 0)) == 1000
    assert names == {"mine"}
    assert batches > 1


def test_all_problems_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    """But for those that an argument replaces."""
    file = tmp_path / "client.properties"
    file.write_text("acks=2\nlinger_ms=soon\nno.such=1\nbatch.size=-1\nclient.id=a\n", "utf-8")
    done = refused("load", "a", "--topic", "t", "--config", str(file), "-X", "batch_size=1000")

    assert done.code == 2
    assert done.errors == [
        "3 options cannot be used:",
        f"- {file}, line 3: no.such: there is no option 'no.such'",
        f"- {file}, line 1: acks must be \"all\", -1, 1 or 0, not '2'",
        f"- {file}, line 2: linger.ms must be a whole number, not 'soon'",
    ]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["\udcff.parquet"], "PATH b'\\xff.parquet': not UTF-8"),
        (["a", "--exactly-once", "--sink", "s", "--run-id", "\udcff"], "--run-id b'\\xff': not UTF-8"),
        (["a", "--key", "\udcff"], "--key b'\\xff': not UTF-8"),
        (["a", "-X", "sasl.password=\udcff"], "--property sasl.password: its value is not UTF-8"),
    ],
)
def test_argument_that_is_not_utf8_is_a_usage_error(arguments: list[str], said: str) -> None:
    """Before anything is read or sent."""
    done = refused("load", *arguments, "--topic", "t", "-b", "127.0.0.1:1")

    assert (done.code, done.errors) == (2, [said])


def test_partitioned_folder_is_refused(tmp_path: Path) -> None:
    """Its records would lack the columns that only the names of folders have."""
    (tmp_path / "day=2026-01-01").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "day=2026-01-01" / "part-0.parquet")
    done = refused("load", str(tmp_path), "--topic", "t", "--json", "-b", "127.0.0.1:1")

    assert (done.code, len(done.errors)) == (2, 1)
    assert "the folder 'day=2026-01-01' has a column 'day' in its name" in done.errors[0]
    assert "give --master, such as 'local[*]', and --sql" in done.errors[0]


@pytest.mark.parametrize("server", ["kafka.internal", "h:1,kafka.internal", "kafka.a:1,kafka.internal:x"])
async def test_wrong_address_is_told_as_it_was_given(server: str) -> None:
    """The prefix of the data source's options is taken from names alone."""
    done = await run("load", "a", "--topic", "t", "-b", server)

    assert done.code == 2
    assert "kafka.internal" in done.errors[0]


async def test_missing_topic_is_told(orders: Path) -> None:
    """A topic that does not exist is not made."""
    async with FakeCluster(topics={"t": 1}) as cluster:
        done = await run("load", str(orders), "--topic", "x", "--json", "-b", cluster.bootstrap_servers)

    assert done.code == 1
    assert done.errors == [
        "topic 'x' does not exist, or may not be described; create it with `aioproducer topic create x --partitions N`"
    ]
