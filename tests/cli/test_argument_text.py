"""Arguments that are not ASCII, or not text."""

import pytest
from typer.testing import CliRunner

from aioproducer.cli.main import command_line
from aioproducer.testing import FakeCluster
from tests.cli.commands import Ended, run

NO_TEXT = "\udcff"  # the byte 0xff, as Python gives it to a program

NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0"}


def refused(*arguments: str) -> Ended:
    """Run the command in this process, which nothing is connected from."""
    result = CliRunner().invoke(command_line(arguments), arguments)
    return Ended.of(result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize(
    "arguments, names",
    [
        (["produce", "t", "--header", f"{NO_TEXT}=x"], "the name in --header"),
        (["produce", "t", "--key", NO_TEXT, "--format", "csv"], "--key"),
        (["produce", "t", "--transactional", "--transactional-id", NO_TEXT], "--transactional-id"),
        (["produce", "t", "--property", f"client.id={NO_TEXT}"], "--property client.id"),
        (["tail", "t", "--group", NO_TEXT], "--group"),
        (["txn", "describe", NO_TEXT], "the transactional id"),
        (["txn", "abort", NO_TEXT], "the transactional id"),
        (["txn", "list", "--state", NO_TEXT], "--state"),
        (["txn", "list", "--hanging", "--topic", NO_TEXT], "--topic"),
    ],
    ids=" ".join,
)
def test_name_that_is_no_text_is_one_line(arguments: list[str], names: str) -> None:
    ended = refused(*arguments, "-b", "h:1")

    assert (ended.code, ended.errors) == (2, [f"{names} {NO_TEXT!r}: not UTF-8"])


@pytest.mark.parametrize("arguments", [["produce", NO_TEXT], ["tail", NO_TEXT]], ids=" ".join)
def test_topic_that_is_no_text_is_one_line(arguments: list[str]) -> None:
    ended = refused(*arguments, "-b", "h:1")

    assert (ended.code, len(ended.errors)) == (2, 1)
    assert repr(NO_TEXT) in ended.errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, NO_LOCALE], ids=["", "no locale"])
async def test_header_has_the_bytes_that_were_given(environment: dict[str, str]) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        ended = await run(
            *["produce", "t", "-b", cluster.bootstrap_servers, "--header", f"\xfc={NO_TEXT}"],
            stdin=b"a\n",
            environment=environment,
        )
        (record,) = cluster.records("t", 0)

    assert ended.code == 0
    assert list(record.headers) == [("\xfc", b"\xff")]


@pytest.mark.slow
async def test_id_is_read_and_shown_without_a_locale() -> None:
    async with FakeCluster(1) as cluster:
        ended = await run("txn", "describe", "\xfc", "-b", cluster.bootstrap_servers, environment=NO_LOCALE)

    assert (ended.code, ended.output, ended.errors) == (1, "", ["there is no transactional id '\xfc'"])
