"""`aioproducer topic`: create, list, describe and delete topics."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, TypeAlias

import typer

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.topics import Topics
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.topic_admin_messages import OF_CLUSTER, DescribedTopic, NewTopic, Setting
from aioproducer.cli.answering import Json, Timeout, answer, asked, columns, say, say_json
from aioproducer.cli.arguments import BootstrapServer, ConfigFile, TokenProviderName, connection_config, required_text
from aioproducer.cli.connecting import CONNECT_TIMEOUT_S
from aioproducer.cli.process import EXIT_FAILED, EXIT_INTERRUPTED, tell
from aioproducer.cli.running import usage_error
from aioproducer.config import ProducerConfig
from aioproducer.records import check_topic_name

CLIENT_ID: Final = "aioproducer-topic"
MOST_REPLICAS: Final = 2**15 - 1
MOST_PARTITIONS: Final = 2**31 - 1

_SETTING: Final = re.compile(r"(?P<name>[a-z][a-z0-9.]*)=(?P<value>.*)", re.DOTALL)
"""A setting of a topic; the name of a file that looks like one is given as `./NAME`."""

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Of the topic.", show_default=False)]
Names: TypeAlias = Annotated[list[str], typer.Argument(metavar="NAME...", help="Of the topics.", show_default=False)]

topic: typer.Typer = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)


@topic.command("create")
def create(
    name: Name,
    bootstrap_server: BootstrapServer = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=MOST_PARTITIONS, metavar="N", show_default="as the cluster says"),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            "-r",
            min=1,
            max=MOST_REPLICAS,
            metavar="N",
            help="Copies of each partition.",
            show_default="as the cluster says",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=VALUE|FILE",
            help="A setting of the topic, such as retention.ms=86400000, which may be given again; or, as for other "
            "commands, a property file of Kafka's clients.",
            show_default=False,
        ),
    ] = None,
    token_provider: TokenProviderName = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Create a topic, and wait until it can be written to.

    Exit code 0: created. 1: it exists, a refusal, or no answer. 2: invalid usage.
    """
    settings, files = _settings_and_files(config or [])
    if len(files) > 1:
        usage_error(f"--config: one file, and settings as NAME=VALUE; given are the files {', '.join(files)}")
    wanted = NewTopic(_checked(name), partitions or OF_CLUSTER, replication or OF_CLUSTER, settings)
    connection = _connection(bootstrap_server, next(iter(files), None), token_provider)
    answer(connection, timeout, partial(_create, wanted))


@topic.command("list")
def list_topics(
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    internal: Annotated[bool, typer.Option("--internal", help="Show the topics of Kafka itself too.")] = False,
    as_json: Json = False,
    token_provider: TokenProviderName = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Show the topics of a cluster.

    Exit code 0: all are shown. 1: no answer. 2: invalid usage.
    """
    connection = _connection(bootstrap_server, config, token_provider)
    answer(connection, timeout, partial(_list, has_internal=internal, as_json=as_json))


@topic.command("describe")
def describe(
    name: Name,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    as_json: Json = False,
    token_provider: TokenProviderName = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Show a topic: its partitions with leaders and replicas, and the settings that it was given.

    Exit code 0: shown. 1: it does not exist, or no answer. 2: invalid usage.
    """
    connection = _connection(bootstrap_server, config, token_provider)
    answer(connection, timeout, partial(_describe, _checked(name), as_json=as_json))


@topic.command("delete")
def delete(
    names: Names,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    token_provider: TokenProviderName = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Delete topics with all their records, after a question.

    Exit code 0: deleted. 1: one does not exist, the answer was no, a refusal, or no answer. 2: invalid usage.
    """
    wanted = [_checked(name) for name in dict.fromkeys(names)]
    connection = _connection(bootstrap_server, config, token_provider)
    found = asked(connection, timeout, lambda requests: Topics(requests).described(wanted))
    if not yes and not _is_agreed(found, ",".join(connection.bootstrap_servers)):
        tell("aioproducer: nothing was deleted")
        sys.exit(EXIT_FAILED)
    answer(connection, timeout, partial(_delete, wanted))


def _connection(bootstrap_server: str | None, config: str | None, token_provider: str | None) -> ProducerConfig:
    return connection_config(bootstrap_server, config, client_id=CLIENT_ID, token_provider=token_provider)


async def _create(wanted: NewTopic, requests: ClusterRequests) -> int:
    made = await Topics(requests).create(wanted)
    say([f"topic {wanted.name} created: {_size(made)}"])
    return 0


async def _list(requests: ClusterRequests, *, has_internal: bool, as_json: bool) -> int:
    found = [each for each in await Topics(requests).listed() if has_internal or not each.is_internal]
    if as_json:
        say_json(_as_json(each) for each in found)
    else:
        rows = [(each.name, str(len(each.partitions)), str(_replication(each))) for each in found]
        say(columns(("TOPIC", "PARTITIONS", "REPLICATION"), rows) if rows else ["no topics"])
    return 0


async def _describe(name: str, requests: ClusterRequests, *, as_json: bool) -> int:
    topics = Topics(requests)
    (found,) = await topics.described([name])
    settings = await topics.settings(name)
    if as_json:
        placement = [each._asdict() for each in sorted(found.partitions)]
        given = {setting.name: setting.value for setting in settings}
        say_json([{**_as_json(found), "settings": given, "placement": placement}])
    else:
        say(described_lines(found, settings))
    return 0


async def _delete(names: Sequence[str], requests: ClusterRequests) -> int:
    await Topics(requests).delete(names)
    say(f"topic {name} deleted" for name in names)
    return 0


def described_lines(found: DescribedTopic, settings: Sequence[Setting]) -> Iterator[str]:
    yield f"topic     {printable(found.name)}: {_size(found)}"
    for setting in settings:
        shown = "(sensitive)" if setting.value is None else printable(setting.value)
        yield f"setting   {printable(setting.name)}={shown}"
    yield ""
    rows = [
        (
            str(each.partition),
            str(each.leader) if each.leader >= 0 else "none",
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
        )
        for each in sorted(found.partitions)
    ]
    yield from columns(("PARTITION", "LEADER", "REPLICAS", "IN SYNC"), rows)


def _as_json(found: DescribedTopic) -> Mapping[str, object]:
    return {
        "topic": found.name,
        "partitions": len(found.partitions),
        "replication": _replication(found),
        "internal": found.is_internal,
    }


def _size(found: DescribedTopic) -> str:
    count, copies = len(found.partitions), _replication(found)
    return f"{count} partition{'s' * (count != 1)}, {copies} replica{'s' * (copies != 1)} each"


def _replication(found: DescribedTopic) -> int:
    return max((len(each.replicas) for each in found.partitions), default=0)


def _is_agreed(found: Sequence[DescribedTopic], servers: str) -> bool:
    for each in found:
        tell(f"topic {printable(each.name)}: {_size(each)}")
    noun = "this topic" if len(found) == 1 else f"these {len(found)} topics"
    tell(f"Delete {noun} with all records on {servers}? [y/N] ", end="")
    try:
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, ValueError):  # it cannot be read, or is not text
        return False


def _settings_and_files(given: Sequence[str]) -> tuple[Mapping[str, str], Sequence[str]]:
    settings: dict[str, str] = {}
    files: list[str] = []
    for each in given:
        match = _SETTING.fullmatch(required_text("--config", each))
        if match is None:
            files.append(each)
        elif match["name"] in settings:
            usage_error(f"--config: {match['name']} is given twice")
        else:
            settings[match["name"]] = match["value"]
    return settings, files


def _checked(name: str) -> str:
    text = required_text("the topic", name)
    try:
        check_topic_name(text)
    except ValueError as error:
        usage_error(str(error))
    return text
