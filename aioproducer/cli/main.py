"""The entry point of the `aioproducer` command: finds the subcommand, names the missing extra, runs it.

Each subcommand lives in a file of its own name with a function of its own name, and is imported only when it is
asked for: `aioproducer broker` loads no consumer, and a missing extra is one line, not a traceback.
"""

import errno
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from aioproducer._version import VERSION
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from aioproducer.cli.standard_streams import discard, let_any_text_out, open_closed_streams, tell

if TYPE_CHECKING:
    from typer import Typer

COMMANDS = ("produce", "tail", "txn", "broker")
_TAKES_NO_MORE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE))


def app() -> None:
    """Run the command line with `sys.argv`; exits with 2 and one line when an extra is missing."""
    open_closed_streams()
    let_any_text_out()
    try:
        commands = command_line(sys.argv[1:])
    except ModuleNotFoundError as missing:
        sys.exit(_say_which_extra(missing))
    except KeyboardInterrupt:  # while the libraries load
        sys.exit(EXIT_INTERRUPTED)
    _run(commands)


def _run(commands: "Typer") -> None:
    """Run the command; a standard stream that takes no more is one line, where that can be said.

    Raises:
        SystemExit: always, with its code.
        OSError: another one; commands tell of those themselves.
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
    """What it ends with: 2 where it was asked wrongly and could not say so."""
    behind = error.__context__
    meant = behind.code if isinstance(behind, SystemExit) else getattr(behind, "exit_code", None)  # of Click's errors
    return meant if isinstance(meant, int) and meant else EXIT_FAILED


def command_line(arguments: Sequence[str]) -> "Typer":
    """The Typer application with the one subcommand that `arguments` ask for, or with all of them (for `--help`).

    Raises:
        ModuleNotFoundError: a library that an extra brings is not installed.
    """
    import typer  # noqa: PLC0415 - the extra may be missing, and that must be one clear line

    commands = typer.Typer(
        help="An asyncio-native Kafka producer, and what its users need around it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    show = typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")

    def options(*, version: Annotated[bool, show] = False) -> None:
        """Keeps a single subcommand a subcommand: Typer would otherwise drop its name."""

    commands.callback(help=commands.info.help)(options)
    for name in _wanted(arguments):
        module = importlib.import_module(f"aioproducer.cli.{name}")
        command = getattr(module, name)
        if isinstance(command, typer.Typer):  # one with commands of its own
            commands.add_typer(command, name=name)
        else:
            commands.command(name)(command)
    return commands


def _wanted(arguments: Sequence[str]) -> Sequence[str]:
    """The subcommand named first in `arguments`, alone; else every one, for the help and the error of a wrong name."""
    return arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS


def _show_version(is_asked_for: bool) -> None:
    if is_asked_for:
        print(f"aioproducer {VERSION}")
        sys.exit()


def _say_which_extra(missing: ModuleNotFoundError) -> int:
    """Print the one line for a missing library and return the exit code; our own missing module is a bug."""
    library = (missing.name or "").partition(".")[0]
    if library in {"", "aioproducer"}:
        raise missing
    tell(f"aioproducer: {library} is not installed; in its clone, run: pip install '.[cli]'")
    return EXIT_USAGE
