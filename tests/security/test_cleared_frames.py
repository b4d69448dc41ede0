"""Error reports show the local variables of frames: those of this package hold no secret when a constructor raises."""

import importlib
import inspect
import os
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aioproducer
from aioproducer import Producer, ProducerConfig
from aioproducer.blocking import BlockingProducer
from aioproducer.cli.arguments import connection_config
from aioproducer.compat import AIOKafkaProducer
from aioproducer.integrations.schema_registry import AvroSerializer, ConfluentRegistry, JsonSchemaSerializer
from aioproducer.security import ClientCredentials, JwtBearer, Secret
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing import MockProducer

# In two parts, so that the frame of a test does not hold it.
CANARY = "can" + "ary-7f3a"
S = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "a"}
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'
FILE = f"bootstrap.servers=x:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n"
URL = f"http://u:{CANARY}@h:1"
KEY = f"-----BEGIN PRIVATE KEY-----\n{CANARY}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))


def of_file(text: str) -> ProducerConfig:
    return ProducerConfig.from_properties_file(written(text))


def written(text: str) -> Path:
    path = Path(os.environ["FOLDER"]) / "client.properties"
    path.write_text(text)
    return path


PROPERTIES = {"bootstrap.servers": "x:1", "linger.ms": "-1", "sasl.password": CANARY}
OF_SPARK = {"kafka.bootstrap.servers": "x:1", "kafka.linger.ms": "-1", "kafka.sasl.password": CANARY, "topic": "t"}
MAKERS: dict[str, Callable[..., object]] = {
    "Producer": Producer,
    "BlockingProducer": BlockingProducer,
    "MockProducer": MockProducer,
    "ProducerConfig": lambda servers, **options: ProducerConfig(bootstrap_servers=servers, **options),
    "throughput": ProducerConfig.throughput,
    "replace": lambda servers, **options: CONFIG.replace(bootstrap_servers=servers, **options),
}
CONFIG = ProducerConfig(bootstrap_servers="x:1")
OPTIONS: dict[str, dict[str, object]] = {
    "out of range": {**S, "sasl_password": CANARY, "linger_ms": -1},
    "misspelt": {**S, "sasl_password": CANARY, "lingerms": 1},
    "misspelt password": {**S, "sasl_pasword": CANARY},
    "password as bytes": {**S, "sasl_password": CANARY.encode()},
    "password in a list": {**S, "sasl_password": [CANARY]},
    "of another listener": {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": CANARY},
    "password with NUL": {**S, "sasl_password": CANARY + "\0"},
    "JAAS": {**S, "sasl_jaas_config": JAAS[:-2]},
    "JAAS and password": {"security_protocol": "SASL_SSL", "sasl_jaas_config": JAAS, "sasl_password": CANARY},
    "password of a key": {"security_protocol": "SSL", "ssl_key_password": CANARY, "linger_ms": -1},
    "key as the name of a file": {"security_protocol": "SSL", "ssl_keystore_location": KEY},
    "key without certificate": {"security_protocol": "SSL", "ssl_keystore_key": KEY},
    "proxy without port": {"proxy_url": URL[:-2]},
    "proxy of no scheme": {"proxy_url": URL.replace("http", "ftp")},
    "proxy and another": {"proxy_url": URL, "linger_ms": -1},
    "provider": {**S, "sasl_token_provider": CANARY},
}
CASES: dict[str, Callable[[], object]] = {
    "file, another option": lambda: of_file(FILE + "linger.ms=-1\n"),
    "file, unknown option": lambda: of_file(FILE + "linger.sm=1\n"),
    "file, escape": lambda: of_file(FILE + "client.id=\\u12\n"),
    "file, JAAS": lambda: of_file(FILE.replace(f'{CANARY}"', CANARY)),
    "file, module": lambda: of_file(FILE.replace("PlainLoginModule", "FooModule")),
    "file of a command": lambda: connection_config(None, str(written(FILE + "sasl.mechanism=x\n")), client_id="c"),
    "properties": lambda: ProducerConfig.from_kafka_properties(PROPERTIES),
    "Spark's write": lambda: SinkOptions.parse(OF_SPARK),
    "Spark's read": lambda: SourceOptions.parse({**OF_SPARK, "subscribe": "t"}, is_stream=None),
    "aiokafka's": lambda: AIOKafkaProducer(
        sasl_plain_password=CANARY, linger_ms=-1, security_protocol="SASL_PLAINTEXT"
    ),
    "secret of bytes": lambda: Secret(CANARY.encode()),  # type: ignore[arg-type]
    "endpoint in the clear": lambda: ClientCredentials("http://idp/token", client_id="a", client_secret=CANARY),
    "endpoint with a user": lambda: ClientCredentials(f"https://u:{CANARY}@[::1/t", client_id="a", client_secret="b"),
    "empty id": lambda: ClientCredentials("https://idp/token", client_id="", client_secret=CANARY),
    "secret of no text": lambda: ClientCredentials("https://idp/", client_id="a", client_secret=[CANARY]),  # type: ignore[arg-type]
    "JwtBearer": lambda: JwtBearer(
        "http://idp/", private_key_file="/x", issuer="a", subject="b", private_key_password=CANARY
    ),
    "registry": lambda: ConfluentRegistry({"url": "http://r", "basic.auth.user.info": f"u:{CANARY}", "x": 1}),
    "registry's URL": lambda: ConfluentRegistry(f"ftp://u:{CANARY}@r"),
    "Avro": lambda: AvroSerializer('"int"', {"url": 1, "basic.auth.user.info": CANARY}),
    "JSON Schema": lambda: JsonSchemaSerializer("{}", {"url": f"x://u:{CANARY}@r"}),
}
CASES |= {
    f"{maker}, {case}": lambda make=make, options=options: make("x:1", **options)  # type: ignore[misc]
    for maker, make in MAKERS.items()
    for case, options in OPTIONS.items()
}
CASES |= {f"{maker}, servers": lambda make=make: make(f"u:{CANARY}@x:1") for maker, make in MAKERS.items()}  # type: ignore[misc]


def errors_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and all that it came from."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            todo += [each.__cause__, each.__context__]
            yield each


def shown_locals(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield name and `repr` of the variables in this package's frames."""
    for each in errors_of(error):
        for frame, _ in traceback.walk_tb(each.__traceback__):
            if "/aioproducer/" in frame.f_code.co_filename:
                yield from ((f"{frame.f_code.co_qualname}.{k}", repr(v)) for k, v in frame.f_locals.items())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("case", CASES)
def test_constructor_that_raises_leaves_no_secret(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((Exception, SystemExit)) as raised:
        CASES[case]()

    error = raised.value
    assert [name for name, text in shown_locals(error) if CANARY in text] == []
    for each in errors_of(error):
        assert CANARY not in f"{each} {each!r} {each.__dict__}"
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    of_package = [frame for frame in report.stack if "/aioproducer/" in frame.filename]
    assert CANARY not in f"{[frame.locals for frame in of_package]}"
    assert type(error).__name__ in "".join(report.format())
    assert CANARY not in "".join(capsys.readouterr())


def test_traceback_keeps_the_lines_below() -> None:
    with pytest.raises(aioproducer.ConfigurationError) as raised:
        Producer("x:1", linger_ms=-1)

    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert {"cleared", "__init__", "accept_all"} <= set(names)


def test_frames_of_the_caller_keep_their_variables() -> None:
    def handling(mine: str) -> None:
        try:
            int(mine)
        except ValueError:
            Producer("x:1", linger_ms=-1)

    with pytest.raises(aioproducer.ConfigurationError) as raised:
        handling("my own")

    assert raised.value.__context__ is not None
    tracebacks = (raised.value.__traceback__, raised.value.__context__.__traceback__)
    held = [frame.f_locals for tb in tracebacks for frame, _ in traceback.walk_tb(tb)]
    assert sum(each.get("mine") == "my own" for each in held) == 2


def constructed_by_users() -> Iterator[type]:
    """Yield the public classes with a constructor of their own, which may raise; Cython's are never half made."""
    names = ["aioproducer", *(found.name for found in pkgutil.walk_packages(aioproducer.__path__, "aioproducer."))]
    for name in names:
        if any(part.startswith("_") or part in {"cli", "tether"} for part in name.split(".")):
            continue
        module = importlib.import_module(name)
        for each in (getattr(module, each) for each in getattr(module, "__all__", ())):
            own = inspect.getattr_static(each, "__init__", None) if inspect.isclass(each) else None
            is_ours = inspect.isfunction(own) and own.__module__.startswith("aioproducer")
            if is_ours and not inspect.isabstract(each) and not issubclass(each, BaseException):
                yield each


def test_repr_works_of_each_object_whose_constructor_raised() -> None:
    classes = {each for each in constructed_by_users() if not hasattr(each, "__dataclass_fields__")}
    shown = {repr(each.__new__(each)) for each in classes | {ProducerConfig}}

    assert len(shown) > 15
    assert {"<Producer that was not made>", "<Secret that was not made>"} <= shown
