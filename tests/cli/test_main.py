"""The entry point: finds the subcommand, says which extra is missing, copes with full and closed standard streams."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.main import get_command

import aioproducer
from aioproducer import Producer
from aioproducer.cli.main import WIDTH_OF_TABLES, command_line
from aioproducer.testing import FakeCluster
from tests.cli.commands import read_to_end, run, values

COMMAND = [sys.executable, "-m", "aioproducer"]
WITHOUT = "import sys; sys.modules[{library!r}] = None; from aioproducer.cli.main import app; app()"

FULL = Path("/dev/full")
only_where_one_is_full = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a file that is always full")

CLI = Path(aioproducer.__file__).parent / "cli"


def run_without(library: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as if a library were not installed."""
    program = WITHOUT.format(library=library)
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library, arguments", [("typer", ["broker"]), ("typer", ["--help"]), ("aiokafka", ["tail"])])
def test_missing_extra_is_one_line(library: str, arguments: list[str]) -> None:
    ended = run_without(library, *arguments)

    said = f"aioproducer: {library} is not installed: pip install 'aioproducer[cli]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["produce", "t", "-X", "max.block.ms=100"], ["txn", "list", "--timeout", "0.1"]])
def test_uvloop_is_not_required(command: list[str]) -> None:
    """The commands use it if it is installed."""
    ended = run_without("uvloop", *command, "-b", "127.0.0.1:1")

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


def test_command_loads_only_what_it_needs() -> None:
    ended = run_without("aiokafka", "broker", "--nodes", "0")

    assert (ended.returncode, ended.stderr) == (2, "aioproducer: --nodes 0: must be 1 to 9\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_error", [False, True], ids=["output", "errors"])
def test_stream_that_takes_nothing_now_is_waited_for(*, is_error: bool) -> None:
    """A parent on asyncio or Node leaves O_NONBLOCK on its pipes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b" " * 4096)
    arguments, others = ["broker", "--nodes", "0"] if is_error else ["--version"], subprocess.PIPE
    streams = {"stderr": writer, "stdout": others} if is_error else {"stdout": writer, "stderr": others}
    with subprocess.Popen([*COMMAND, *arguments], **streams) as process:
        os.close(writer)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        said = read_to_end(reader)[filled:]

    assert process.returncode == (2 if is_error else 0)
    assert said.startswith(b"aioproducer")


@pytest.mark.slow
def test_command_runs_as_a_module() -> None:
    """Where its script is not on the path."""
    ended = subprocess.run([sys.executable, "-m", "aioproducer", "--version"], capture_output=True, check=False)

    assert (ended.returncode, ended.stdout) == (0, f"aioproducer {aioproducer.__version__}\n".encode())


@only_where_one_is_full
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["produce", "--help"], ["broker", "--port", "0"]])
def test_full_standard_output_is_one_line(arguments: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with FULL.open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment, text=True, check=False
        )

    lines = [line for line in ended.stderr.splitlines() if not line.startswith("starting ")]
    assert (ended.returncode, lines) == (1, ["aioproducer: standard output: No space left on device"])


@only_where_one_is_full
@pytest.mark.parametrize("arguments", [["nosuch"], ["produce"], ["broker", "--nodes", "0"]])
def test_full_standard_error_changes_no_exit_code(arguments: list[str]) -> None:
    with FULL.open("w", encoding="utf-8") as full:
        ended = subprocess.run([*COMMAND, *arguments], stderr=full, check=False)

    assert ended.returncode == 2


def shown_help(command: str, *, columns: int) -> str:
    program = [*COMMAND, *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [WIDTH_OF_TABLES - 1, WIDTH_OF_TABLES])
@pytest.mark.parametrize("command", ["produce", "load", "txn abort"])
def test_help_cuts_no_option_name(command: str, columns: int) -> None:
    assert re.search(r"--[a-z-]*…", shown_help(command, columns=columns)) is None


@pytest.mark.slow
def test_width_of_zero_is_no_width() -> None:
    """Some CI runners and `expect` set it."""
    assert "--bootstrap-server" in shown_help("produce", columns=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, default",
    [
        ("load", "no keys"),
        ("load", "one per core"),
        ("load", "without Spark"),
        ("produce", "aioproducer-produce-TOPIC"),
        ("txn resolve", "found by the group's offsets"),
    ],
)
def test_help_shows_default_that_is_no_value(command: str, default: str) -> None:
    """Text in square brackets would be markup, and vanish."""
    assert default in shown_help(command, columns=200)


@pytest.mark.parametrize("command", ["produce", "tail"])
def test_brokers_are_named_by_one_option(command: str) -> None:
    options = [option.opts for option in get_command(command_line([command])).commands[command].params]

    assert ["--bootstrap-server", "-b"] in options


def test_exit_codes_have_one_home() -> None:
    """The same word cannot mean two numbers."""
    others = [path for path in CLI.rglob("*.py") if path.name != "process.py"]
    texts = {path.name: re.findall(r"^(EXIT_\w+)\b.*= \d+$", path.read_text("utf-8"), re.MULTILINE) for path in others}

    assert {name: defined for name, defined in texts.items() if defined} == {}


@pytest.mark.slow
def test_version_is_told() -> None:
    ended = run_without("pyspark", "--version")

    assert (ended.returncode, ended.stdout) == (0, f"aioproducer {aioproducer.__version__}\n")


# Standard streams that the caller has closed


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, topics={"t": 1}) as running:
        async with Producer(running.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"there")
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("redirection", CLOSED)
async def test_tail_ends_as_ever(cluster: FakeCluster, redirection: str) -> None:
    arguments = ["--from-beginning", "-n", "1", "--format", "value"]
    ended = await run("tail", "t", "-b", cluster.bootstrap_servers, *arguments, redirection=redirection)

    assert ended.code == 0
    assert ended.output == ("" if ">&-" in redirection.split() else "there\n")


@pytest.mark.slow
@pytest.mark.parametrize("redirection", CLOSED)
async def test_produce_of_a_file_ends_as_ever(cluster: FakeCluster, tmp_path: Path, redirection: str) -> None:
    (tmp_path / "lines").write_bytes(b"a\n")

    ended = await run("produce", "t", f"{tmp_path}/lines", "-b", cluster.bootstrap_servers, redirection=redirection)

    assert ended.code == 0
    assert values(cluster) == [b"there", b"a"]


@pytest.mark.slow
async def test_txn_list_ends_as_ever(cluster: FakeCluster) -> None:
    ended = await run("txn", "list", "-b", cluster.bootstrap_servers, redirection="<&-")

    assert (ended.code, ended.output, ended.errors) == (0, "no transactions\n", [])


@pytest.mark.slow
async def test_closed_standard_input_is_no_empty_one(cluster: FakeCluster) -> None:
    """What was to be sent is not there: nothing is sent, and that is said."""
    ended = await run("produce", "t", "-b", cluster.bootstrap_servers, redirection="<&-")

    assert (ended.code, ended.errors) == (2, ["standard input: bad file descriptor"])
    assert values(cluster) == [b"there"]
