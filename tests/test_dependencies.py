"""The bare install: three dependencies, and clear errors for what an extra brings."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aioproducer
from aioproducer.testing import FakeCluster

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGE = Path(aioproducer.__file__).parent

SEND = """
import sys, aioproducer
with aioproducer.BlockingProducer(sys.argv[1]) as producer:
    print(producer.send("t", b"v", partition=0).offset)
print(sorted({"anyio", "kio", "uvloop", "aiokafka", "typer", "rich"} & set(sys.modules)))
"""
TESTING = "from aioproducer.testing import FakeCluster; FakeCluster(1)"
PUSHING = "from aioproducer import Producer; Producer('h:1', enable_metrics_push=True)"
MISSING = "enable_metrics_push=True needs opentelemetry-proto: pip install 'aioproducer[telemetry]'"
MESSAGE = """
from types import SimpleNamespace as Some
file = Some(name="m.proto", serialized_pb=b"", dependencies=[], message_types_by_name={"M": 1})
class Message: DESCRIPTOR = Some(name="M", full_name="M", containing_type=None, nested_types=[], file=file)
"""
INSTALL = "pip install 'aioproducer[registry]'"
REGISTRY = "from aioproducer.integrations.schema_registry import *;"
COMMAND = "from aioproducer.cli.main import app; app()"


def names(requirements: list[str]) -> set[str]:
    wanted = [each for each in requirements if "extra ==" not in each]
    return {match[0].lower() for each in wanted if (match := re.match(r"[\w.-]+", each))}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "aioproducer").symlink_to(PACKAGE)
    waiting, seen = names(PROJECT["dependencies"]), set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another version of Python
            continue
        waiting |= names(distribution.requires or []) - seen
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in {"..", "__pycache__"}}:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(distribution.locate_file(top)))
    return folder


def run(folder: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-S", "-c", program, *arguments]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_bare_install_has_three_dependencies() -> None:
    """Everything else comes with an extra."""
    assert names(PROJECT["dependencies"]) == {"cramjam", "crc32c", "structlog"}


def test_extra_of_the_command_includes_what_its_broker_needs() -> None:
    """`aioproducer broker` is the embedded cluster."""
    extras = PROJECT["optional-dependencies"]

    assert extras["cli"][0] == "aioproducer[testing,uvloop]"
    assert [names(extras[extra]) for extra in ("testing", "uvloop")] == [{"anyio", "cryptography", "kio"}, {"uvloop"}]


@pytest.mark.slow
def test_bare_install_sends(bare: Path) -> None:
    with FakeCluster.in_thread(1, topics={"t": 1}) as cluster:
        ended = run(bare, SEND, cluster.bootstrap_servers)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["0", "[]"]


def test_mock_producer_needs_no_extra(bare: Path) -> None:
    ended = run(bare, "from aioproducer.testing import MockProducer; MockProducer()")

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "program, said",
    [
        (
            PUSHING,
            f"aioproducer.errors.ConfigurationError: {MISSING}",
        ),
        (TESTING, "ModuleNotFoundError: FakeCluster needs kio: pip install 'aioproducer[testing]'"),
        (COMMAND, "aioproducer: typer is not installed: pip install 'aioproducer[cli]'"),
        (
            "import aioproducer.integrations.prometheus",
            "ModuleNotFoundError: ProducerCollector needs prometheus-client: pip install 'aioproducer[prometheus]'",
        ),
        (
            "import aioproducer.outbox",
            "ModuleNotFoundError: Outbox needs sqlalchemy: pip install 'aioproducer[outbox]'",
        ),
        (
            "import aioproducer.integrations.opentelemetry",
            "ModuleNotFoundError: OpenTelemetryInterceptor needs opentelemetry-api: pip install 'aioproducer[otel]'",
        ),
        (
            f"{REGISTRY} AvroSerializer('\"int\"', 'http://r')",
            "ModuleNotFoundError: AvroSerializer needs fastavro: pip install 'aioproducer[registry]'",
        ),
        (
            f"{REGISTRY} JsonSchemaSerializer('{{}}', 'http://r')",
            "ModuleNotFoundError: JsonSchemaSerializer needs jsonschema: pip install 'aioproducer[registry]'",
        ),
        (
            f"{MESSAGE}{REGISTRY} ProtobufSerializer(Message, 'http://r')",
            f"ModuleNotFoundError: a schema registry needs confluent-kafka's client: {INSTALL}",
        ),
    ],
    ids=["telemetry", "testing", "command", "prometheus", "outbox", "otel", "avro", "json", "protobuf"],
)
def test_missing_extra_is_named(bare: Path, program: str, said: str) -> None:
    ended = run(bare, program)

    assert ended.returncode != 0
    assert ended.stderr.splitlines()[-1] == said


@pytest.mark.parametrize(
    "integration, modules",
    [("prometheus", ["prometheus_client", "prometheus_client.core"]), ("opentelemetry", ["opentelemetry"])],
)
def test_library_without_a_name_is_not_called_missing(bare: Path, integration: str, modules: list[str]) -> None:
    """As an old version of it."""
    program = f"import sys, types; sys.modules.update({{name: types.ModuleType(name) for name in {modules}}})"
    ended = run(bare, f"{program}; import aioproducer.integrations.{integration}")

    assert ended.stderr.splitlines()[-1].startswith("ImportError: cannot import name")
