"""`aioproducer load`: the arguments of the command."""

import sys
from typing import Annotated

import typer

from aioproducer.cli.arguments import (
    BootstrapServer,
    ConfigFile,
    TokenProviderName,
    file_properties,
    tell_ignored,
    tell_unused_id,
)
from aioproducer.cli.inspecting import InspectPort, listener_of
from aioproducer.cli.load.settings import OWN_PROPERTIES, LoadSettings
from aioproducer.cli.running import usage_error
from aioproducer.errors import ConfigurationError


def load(  # one for each argument
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Files or folders; s3://bucket/folder and the like too.", show_default=False
        ),
    ] = None,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic of the records.", show_default=False)] = "",
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    token_provider: TokenProviderName = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the keys.", show_default="no keys")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the values: bytes, text, or anything as text.", show_default="value"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The value is a JSON object of all columns, without those that are null.")
    ] = False,
    file_format: Annotated[
        str, typer.Option("--format", "-f", help="parquet; with --master also csv, json, orc, text, ...")
    ] = "parquet",
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Load on Spark: local[*], spark://HOST:PORT, yarn, k8s://...",
            show_default="without Spark",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be given again.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tasks on Spark.", show_default="one per core")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY", help="Load the answer of a query on Spark; it finds the files as the table input."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-X", metavar="NAME=VALUE", help="An option of the producer by Kafka's name."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="All or nothing for read_committed readers; needs --sink.")
    ] = False,
    sink: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Name of this load: the same each time it is run, and used by nothing else."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A run that was finished does nothing when it is run again under the same id."),
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="At most N records per second in all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and make the records, but send nothing.")] = False,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write a report as JSON.")] = None,
    inspect: InspectPort = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log on standard error.")] = False,
) -> None:
    """Load Parquet files into a topic, or with --master anything that Spark reads.

    Exit code 0: everything was delivered, or this run was finished before.
    1: not everything; with --exactly-once this run has made nothing visible.
    2: invalid usage, such as a file that is not there; nothing was sent.
    3: with --exactly-once: decided, but rows were lost; the line names them.
    4: with --exactly-once: decided, but not finished, or perhaps decided; txn resolve finishes it.
    130, 143, 129: after Ctrl-C, SIGTERM or SIGHUP.
    """
    file = file_properties(config_file, token_provider)
    tell_ignored(file)
    tell_unused_id(file, "--exactly-once and --sink name the transactions of a load")
    settings = LoadSettings(
        paths=paths or [],
        topic=topic,
        bootstrap_server=file.servers(bootstrap_server),
        file_properties=file.besides(OWN_PROPERTIES),
        token_provider=token_provider,
        key=key,
        value=value,
        is_json=as_json,
        format=file_format.lower(),
        master=master,
        conf=conf or [],
        tasks=tasks,
        sql=sql,
        properties=properties or [],
        exactly_once=exactly_once,
        sink=sink,
        run_id=run_id,
        rate=rate,
        dry_run=dry_run,
        report=report,
        inspect=inspect,
    )
    problems = list(settings.problems()) if topic else ["--topic is missing"]
    if problems:
        usage_error(problems)
    try:
        settings.pairs_of_conf()
        settings.parsed_options()
    except ConfigurationError as error:
        replaced = [each.partition("=")[0] for each in properties or []]
        replaced += ["bootstrap.servers"] * (bootstrap_server is not None)
        usage_error(file.located(error, besides=replaced))
    from aioproducer.cli.load.run import run_load  # noqa: PLC0415  # needs pyarrow, which --help does not

    sys.exit(run_load(settings, is_verbose=verbose, listener=listener_of(inspect)))
