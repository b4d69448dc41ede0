"""The entry point of the `aioproducer` command: imports and runs one subcommand, or names the missing extra.

Each subcommand is a module of its name with a function of its name, and is imported only if it is called:
`aioproducer broker` loads no consumer, `aioproducer --help` nothing but Typer, and a missing extra is one line instead
of a traceback.
"""

import errno
import importlib
import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

from aioproducer._version import VERSION
from aioproducer.cli.process import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    discard,
    forget_width_of_zero,
    let_any_text_out,
    let_streams_wait,
    open_closed_streams,
    tell,
)

if TYPE_CHECKING:
    from typer import Typer

WIDTH_OF_TABLES = 70  # in narrower terminals, tables of options would cut the names: --boots…
COMMANDS = {
    "produce": "Send lines, JSON lines or CSV rows to a topic, in constant memory.",
    "load": "Load Parquet files into a topic, or with --master anything that Spark reads.",
    "tail": "Show new records of a topic, until Ctrl-C; waits for a topic that does not exist yet.",
    "topic": "Create, list, describe and delete topics.",
    "txn": "List, describe and end transactions.",
    "outbox": "Send the rows of an outbox in a database, and look after those that are refused.",
    "diagnose": "Try each step of connecting to a cluster, then to each broker that it advertises.",
    "broker": (
        "Run a cluster on 127.0.0.1 until Ctrl-C: embedded, or real Apache Kafka. Topics are created on first use."
    ),
}
"""The first paragraph of each command's help, here so that the list of all imports none of them."""

_EXTRAS = {"pyarrow": "cli,spark", "pyspark": "cli,spark", "sqlalchemy": "cli,outbox"}
"""Library -> the extras that bring it; `cli` for all others."""
_TAKES_NO_MORE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE))


def app() -> None:
    """Run the command line in `sys.argv`; a missing extra is one line and exit code 2."""
    open_closed_streams()
    let_streams_wait()
    let_any_text_out()
    forget_width_of_zero()
    try:
        commands = command_line(sys.argv[1:])
    except ModuleNotFoundError as missing:
        sys.exit(_say_which_extra(missing))
    except KeyboardInterrupt:  # while the libraries load
        sys.exit(EXIT_INTERRUPTED)
    try:
        _run(commands)
    except ModuleNotFoundError as missing:  # what a command needs only for some of its arguments
        sys.exit(_say_which_extra(missing))


def _run(commands: "Typer") -> None:
    """Run the command; a standard output that cannot be written is one line.

    Raises:
        SystemExit: always, with its code.
        OSError: of anything else, which is a bug.
    """
    try:
        try:
            commands()
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _TAKES_NO_MORE or error.filename is not None:
            raise
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            tell(f"aioproducer: standard output: {error.strerror}")
        sys.exit(_exit_code_meant(error))


def _exit_code_meant(error: OSError) -> int:
    """Return the exit code: that of the usage error, if one could not be printed."""
    behind = error.__context__
    meant = behind.code if isinstance(behind, SystemExit) else getattr(behind, "exit_code", None)  # of Click's errors
    return meant if isinstance(meant, int) and meant else EXIT_FAILED


def command_line(arguments: Sequence[str]) -> "Typer":
    """Return the Typer application with the subcommand in `arguments`, or with the list of all for `--help`."""
    import typer  # noqa: PLC0415 - the extra may be missing

    commands = typer.Typer(
        help="An asyncio-native Kafka producer, and tools around it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode="rich" if get_terminal_size().columns >= WIDTH_OF_TABLES else None,
    )
    show = typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")

    def options(*, version: Annotated[bool, show] = False) -> None:
        """Keep the name of a single subcommand, which Typer would drop."""

    commands.callback(help=commands.info.help)(options)
    wanted = next((argument for argument in arguments if argument != "--"), "")
    if wanted in COMMANDS:
        command = getattr(importlib.import_module(f"aioproducer.cli.{wanted}"), wanted)
        if isinstance(command, typer.Typer):  # one with commands of its own
            commands.add_typer(command, name=wanted)
        else:
            commands.command(wanted)(command)
        return commands
    for name, text in COMMANDS.items():
        commands.command(name, help=text)(_not_called)
    return commands


def _not_called() -> None:
    """Stand for each subcommand in the list of `--help`, and where a wrong name is refused."""


def _show_version(is_asked_for: bool) -> None:
    if is_asked_for:
        print(f"aioproducer {VERSION}")
        sys.exit()


def _say_which_extra(missing: ModuleNotFoundError) -> int:
    """Print the line for a missing library, and return the exit code; a missing module of our own is a bug."""
    library = (missing.name or "").partition(".")[0]
    if library in {"", "aioproducer"}:
        raise missing
    extras = _EXTRAS.get(library, "cli")
    tell(f"aioproducer: {library} is not installed: pip install 'aioproducer[{extras}]'")
    return EXIT_USAGE
