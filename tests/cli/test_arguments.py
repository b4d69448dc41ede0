"""Arguments that commands share: `--config FILE`, servers of the environment, text that is not ASCII or no text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from aioproducer.cli.arguments import LOCAL, SERVERS_VARIABLE, FileProperties, connection_config
from aioproducer.cli.main import COMMANDS, command_line
from aioproducer.testing import FakeCluster
from tests.cli.commands import refused, run
from tests.fakes.proxies import working_proxy

JAVA_FILE = """\
# of a Java producer
bootstrap.servers={servers}
security.protocol=PLAINTEXT
key.serializer=org.apache.kafka.common.serialization.StringSerializer
value.serializer=org.apache.kafka.common.serialization.StringSerializer
linger.ms=7
"""


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVERS_VARIABLE, raising=False)


def commands_of(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each command of Click and its options, also those of groups."""
    for each, below in getattr(command, "commands", {}).items():
        yield from commands_of(below, f"{name} {each}".strip())
    yield name, {option for parameter in command.params for option in parameter.opts}


def test_every_command_with_a_file_takes_a_token_provider() -> None:
    """A file alone cannot authenticate with OAUTHBEARER."""
    found = {name: options for each in COMMANDS for name, options in commands_of(get_command(command_line([each])), "")}
    with_file = {name for name, options in found.items() if "--config" in options}

    assert {"produce", "load", "tail", "diagnose", "txn list", "topic create", "topic delete"} <= with_file
    assert with_file == {name for name, options in found.items() if "--token-provider" in options}


def test_provider_that_cannot_be_had_is_a_usage_error() -> None:
    for command in (["produce", "t"], ["tail", "t"], ["txn", "list"], ["diagnose"], ["load", "x", "--topic", "t"]):
        ended = refused(*command, "--token-provider", "no_such_tokens:given")

        assert ended.code == 2
        assert "--token-provider: the token provider 'no_such_tokens:given': " in ended.errors[0]


def file_of(folder: Path, text: str) -> str:
    path = folder / "client.properties"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "argument, in_file, variable, servers",
    [
        (None, None, None, LOCAL),
        (None, None, "v:1", "v:1"),
        (None, "f:1", "v:1", "f:1"),
        ("a:1", "f:1", "v:1", "a:1"),
        (None, "", "v:1", "v:1"),
    ],
)
def test_argument_wins_over_file_and_file_over_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    argument: str | None,
    in_file: str | None,
    variable: str | None,
    servers: str,
) -> None:
    if variable is not None:
        monkeypatch.setenv(SERVERS_VARIABLE, variable)
    path = None if in_file is None else file_of(tmp_path, f"bootstrap.servers={in_file}")

    assert FileProperties(path).servers(argument) == servers


def test_file_of_a_consumer_says_how_to_connect(tmp_path: Path) -> None:
    """Commands that send nothing take what concerns connections, and leave the rest."""
    text = "bootstrap.servers=f:1\ngroup.id=g\nauto.offset.reset=earliest\nproxy.url=socks5h://u:canary-hunter2@p:1\n"
    config = connection_config(None, file_of(tmp_path, text), client_id="tests")

    assert config.bootstrap_servers == ("f:1",)
    assert str(config.proxy_url) == "socks5h://u:<hidden>@p:1"
    assert "canary-hunter2" not in repr(config)


def test_misspelt_property_about_connections_is_refused(tmp_path: Path) -> None:
    """Left out, it would be the reason of what follows."""
    path = file_of(tmp_path, "group.id=g\nsecurity.protocols=SASL_SSL\n")
    ended = refused("diagnose", "--config", path, "127.0.0.1:1")

    assert (ended.code, len(ended.errors)) == (2, 1)
    assert "line 2: there is no option 'security.protocols'; did you mean 'security.protocol'?" in ended.errors[0]


@pytest.mark.parametrize("command", ["produce t", "tail t", "txn list", "load a.parquet -t t"])
def test_error_in_the_file_is_a_usage_error_with_its_line(tmp_path: Path, command: str) -> None:
    path = file_of(tmp_path, "bootstrap.servers=f:1\n\nproxy.url=ftp://u:canary-hunter2@p:1\n")
    ended = refused(*command.split(), "--config", path)

    assert (ended.code, len(ended.errors)) == (2, 1)
    assert re.search(r"proxy[._]url must be like socks5h://", ended.errors[0])
    assert "canary-hunter2" not in ended.output + ended.errors[0]
    if "load" not in command:
        assert f"{path}, line 3: " in ended.errors[0]


@pytest.mark.parametrize("command", ["produce t", "tail t", "txn list", "load a.parquet -t t"])
def test_file_that_is_not_there_is_a_usage_error(command: str) -> None:
    ended = refused(*command.split(), "--config", "/nowhere.properties")

    assert (ended.code, ended.errors) == (2, ["--config /nowhere.properties: No such file or directory"])


def test_tail_refuses_what_aiokafka_cannot_do(tmp_path: Path) -> None:
    ended = refused("tail", "t", "--config", file_of(tmp_path, "bootstrap.servers=f:1\nproxy.url=http://p:1\n"))

    assert ended.code == 2
    assert "proxy_url cannot be used here: records are read with aiokafka" in ended.errors[0]


@pytest.mark.slow
@pytest.mark.timing
async def test_all_commands_connect_by_a_file(tmp_path: Path) -> None:
    """As a Java team hands it out: with serializers, which would refuse bytes."""
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        path = file_of(tmp_path, JAVA_FILE.format(servers=cluster.bootstrap_servers))
        lines = tmp_path / "lines"
        lines.write_text("a\nb\n")
        produced = await run("produce", "t", str(lines), "--config", path, "-X", "linger.ms=0")
        tailed = await run("tail", "t", "--config", path, "--from-beginning", "-n", "2", "--format", "value")
        listed = await run("txn", "list", "--config", path)

    assert (produced.code, re.sub(r" in .*", "", produced.errors[-1])) == (0, "2 records delivered to t")
    assert (tailed.code, tailed.output) == (0, "a\nb\n")
    assert (listed.code, listed.output) == (0, "no transactions\n")


@pytest.mark.slow
@pytest.mark.timing
async def test_commands_connect_by_the_environment(tmp_path: Path) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        lines = tmp_path / "lines"
        lines.write_text("a\n")
        environment = {SERVERS_VARIABLE: cluster.bootstrap_servers}
        produced = await run("produce", "t", str(lines), environment=environment)
        listed = await run("txn", "list", environment=environment)

    assert (produced.code, listed.code, listed.output) == (0, 0, "no transactions\n")


@pytest.mark.slow
@pytest.mark.timing
async def test_commands_go_through_a_proxy(tmp_path: Path) -> None:
    """Records and requests alike: the file's proxy is the only way to `kafka.invalid`."""
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        places = {"kafka.invalid:9092": int(cluster.bootstrap_servers.rpartition(":")[2])}
        async with working_proxy(credentials="u:canary-p", places=places) as proxy:
            text = f"bootstrap.servers=kafka.invalid:9092\nproxy.url=socks5h://u:canary-p@127.0.0.1:{proxy.port}\n"
            path = file_of(tmp_path, text)
            lines = tmp_path / "lines"
            lines.write_text("a\n")
            produced = await run("produce", "t", str(lines), "--config", path)
            listed = await run("txn", "list", "--config", path)

    assert (produced.code, listed.code, listed.output) == (0, 0, "no transactions\n")


# Text that is not ASCII, or no text


NO_TEXT = "\udcff"  # the byte 0xff, as Python gives it to a program

NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0"}


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


OF_A_TEAM = (
    "bootstrap.servers={servers}\nsession.timeout.ms=45000\nlingr.ms=5\nschema.registry.url=https://r\n"
    "message.timeout.ms=1\nkey.serializer=com.example.Avro\n"
)


@pytest.mark.slow
def test_tail_tells_what_a_producer_would_refuse(tmp_path: Path) -> None:
    path = file_of(tmp_path, OF_A_TEAM.format(servers="f:1"))
    ended = refused("tail", "t", "--config", path, "-b", "127.0.0.1:1")

    told = [line for line in ended.errors if line.startswith("a producer would refuse this: ")]
    assert [re.findall(r"line \d", line) for line in told] == [["line 3"], ["line 5"], ["line 6"]]
    assert "did you mean 'linger.ms'" in told[0]


@pytest.mark.slow
def test_diagnose_shows_what_a_producer_would_refuse(tmp_path: Path) -> None:
    path = file_of(tmp_path, OF_A_TEAM.format(servers="127.0.0.1:1"))
    ended = refused("diagnose", "--config", path, "--timeout", "0.1")

    assert ended.output.startswith(f"{path}\n")
    for text in ("line 3: there is no option 'lingr.ms'; did you mean 'linger.ms'?", "line 5: ", "line 6: "):
        assert text in ended.output


@pytest.mark.parametrize("given", ["inf", "nan", "-inf", "1e300", "2147484", "0", "-1"])
@pytest.mark.parametrize(
    "command", [["topic", "list"], ["txn", "list"], ["diagnose"], ["topic", "delete", "t"]], ids=str
)
def test_timeout_has_one_range(command: list[str], given: str) -> None:
    ended = refused(*command, "--timeout", given)

    assert ended.code == 2
    said = " ".join("\n".join(ended.errors).replace("│", " ").split())
    assert "Invalid value for '--timeout': " in said
    assert "is not a number of seconds from 0.1 to 2147483." in said


@pytest.mark.parametrize("given", ["inf", "nan", "1e300", "-1"])
@pytest.mark.parametrize(
    "command", [["txn", "list", "--hanging", "--longest"], ["produce", "t", "--drain-timeout"]], ids=str
)
def test_other_times_have_a_range_too(command: list[str], given: str) -> None:
    ended = refused(*command, given)

    assert ended.code == 2
    assert "2147483" in "\n".join(ended.errors)


@pytest.mark.parametrize(
    "command", [["produce", "t"], ["tail", "t"], ["topic", "list"], ["topic", "create", "t"]], ids=str
)
def test_empty_path_of_a_file_is_said(command: list[str]) -> None:
    """As of a variable of the shell that is not set; it would be the current folder."""
    ended = refused(*command, "--config", "")

    assert (ended.code, ended.errors) == (2, ["--config must not be empty"])


@pytest.mark.slow
def test_produce_names_what_it_ignores_in_one_line(tmp_path: Path) -> None:
    text = "bootstrap.servers=f:1\nsession.timeout.ms=45000\nschema.registry.url=https://r\nmax.block.ms=1\n"
    ended = refused("produce", "t", "/dev/null", "--config", file_of(tmp_path, text))

    (told,) = [line for line in ended.errors if line.startswith("not used here: ")]
    assert "session.timeout.ms: it is an option of consumers" in told
    assert "schema.registry.url: it is an option of serializers with a schema registry" in told
    assert "docs/how-to/use_schemas.md" in told


@pytest.mark.parametrize("command", [["produce", "t", "/dev/null"], ["load", "--topic", "t"]], ids=str)
def test_transactional_id_of_a_file_is_told_if_unused(tmp_path: Path, command: list[str]) -> None:
    text = "bootstrap.servers=f:1\ntransactional.id=x\nmax.block.ms=1\n"
    ended = refused(*command, "--config", file_of(tmp_path, text))

    assert ended.errors[0].startswith("not used here: transactional.id: ")
