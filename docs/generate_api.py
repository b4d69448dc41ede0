"""Writes `reference/api.md` from the signatures and docstrings of the public names.

It reads the sources, so that signatures are as written; for native modules it reads the stubs. Run it after changing
one: `python docs/generate_api.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from aioproducer._producer.record_fields import keywords_of

PAGE = Path(__file__).parent / "reference" / "api.md"

_INTRODUCTION = """\
<!-- Written by docs/generate_api.py from the docstrings of the public names: change them there. -->

# API

Everything that may be imported; names that are not here may change without notice.
Signatures are as in the source, without `self`.
`Headers` are any iterable of `(str, bytes | None)` pairs;
`OnDelivery` is a function of `(RecordMetadata | None, KafkaError | None)`.
[Guarantees](../explanation/guarantees.md) says what the methods promise, [states](states.md) when they may be called.
"""

_CHAPTERS: Final = {
    "Producers": ("aioproducer", ["Producer", "BlockingProducer", "Topic", "BlockingTopic"]),
    "What comes back": (
        "aioproducer",
        ["Delivery", "RecordMetadata", "TopicPartition", "BulkDelivery", "BulkResult", "OffsetRange", "Outcome"],
    ),
    "Wrappers: what to pass on": ("aioproducer", ["RecordFields", "ColumnFields"]),
    "Looking inside": (
        "aioproducer",
        ["Health", "Metric", "MetricKind", "HistogramValue", "Explanation", "Waiting", "WaitingCall", "WaitReason"],
    ),
    "OpenTelemetry: aioproducer.integrations.opentelemetry": (
        "aioproducer.integrations.opentelemetry",
        ["OpenTelemetryInterceptor", "observe_relays"],
    ),
    "Prometheus: aioproducer.integrations.prometheus": ("aioproducer.integrations.prometheus", ["ProducerCollector"]),
    "In web services: aioproducer.integrations.asgi": (
        "aioproducer.integrations.asgi",
        ["lifespan", "readiness", "deadline", "InvalidDeadlineError", "inspector"],
    ),
    "Transactions": (
        "aioproducer",
        ["Transaction", "PreparedTransaction", "OffsetAndMetadata", "ConsumerGroupMetadata"],
    ),
    "With aiokafka's consumer: aioproducer.integrations.aiokafka": (
        "aioproducer.integrations.aiokafka",
        ["exactly_once", "ExactlyOnce", "PoisonRecordError", "BatchTransaction"],
    ),
    "Outbox: aioproducer.outbox": (
        "aioproducer.outbox",
        [
            *("Outbox", "Relay", "RelayStatistics", "OutboxError", "OutboxTableError", "NotInTransactionError"),
            *("InDoubtError", "ForeignPositionError", "RefusedRowError"),
            *("Spool", "SpoolStatistics", "SpoolError", "SpoolFullError"),
        ],
    ),
    "With a schema registry: aioproducer.integrations.schema_registry": (
        "aioproducer.integrations.schema_registry",
        [
            *("AvroSerializer", "JsonSchemaSerializer", "ProtobufSerializer", "SchemaOptions", "ConfluentRegistry"),
            *("Schema", "SchemaReference", "SchemaId", "SchemaRegistry", "SchemaRegistryError"),
        ],
    ),
    "Code of your own": (
        "aioproducer",
        [
            *("ProducerInterceptor", "ProducerRecord", "WatchedRecord"),
            *("Serializer", "AsyncSerializer", "SerializerWithHeaders"),
            *("BytesSerializer", "StringSerializer"),
            *("JsonSerializer", "IntegerSerializer", "LongSerializer", "ShortSerializer", "FloatSerializer"),
            *("DoubleSerializer", "BooleanSerializer", "UUIDSerializer", "VoidSerializer"),
            *("Partitioner", "RoundRobinPartitioner", "ConsistentRandomPartitioner", "Fnv1aPartitioner"),
            *("partition_for_key", "Cluster"),
        ],
    ),
    "Secured clusters: aioproducer.security": (
        "aioproducer.security",
        ["Secret", "Token", "TokenProvider", "ClientCredentials", "JwtBearer", "MskIam"],
    ),
    "For tests: aioproducer.testing": (
        "aioproducer.testing",
        [
            *("FakeCluster", "FakeClusterOptions", "Faults", "Where", "Fault", "FaultKind", "ApiKey", "LoggedRecord"),
            *(
                "ThreadedFakeCluster",
                "MockProducer",
                "SeenRequest",
                "TopicRefusedError",
                "CoordinatorKind",
                "ErrorCode",
            ),
            *("ClusterSecurity", "SeenAuthentication", "CertificateAuthority", "Certificate", "TokenSigner"),
            *("unsecured_token", "MetricsSubscription"),
        ],
    ),
    "Real Kafka: aioproducer.testing.kafka": (
        "aioproducer.testing.kafka",
        ["KafkaCluster", "Kdc", "BrokerStartError", "MissingToolError", "missing_for_kafka", "missing_for_kerberos"],
    ),
    "aiokafka's interface: aioproducer.compat": ("aioproducer.compat", ["AIOKafkaProducer", "BatchBuilder"]),
}

_ELSEWHERE = """\
## On other pages

- `ProducerConfig`, `ProducerOptions`, `TopicOptions`: every option, in [configuration](configuration.md).
- `ProducerStatistics`: every field, in [metrics](metrics.md).
- Every error, what it says and what leads to it, in [errors](errors.md).
- The command `aioproducer` and its options: `aioproducer --help`.
- `__version__`: of the package.
"""

_PLUGIN: Final = "pytest_aioproducer"

_MADE_FOR_USERS: Final = {
    *("Topic", "BlockingTopic", "Transaction", "BulkDelivery", "ExactlyOnce", "BatchTransaction", "Faults"),
    "ThreadedFakeCluster",
    "Cluster",
}
"""Classes that users do not call: how they are made is the package's own affair."""

_LINE: Final = 88
"""Characters of a signature that stand in one line."""

_SECTION: Final = re.compile(r"^(Args|Returns|Raises|Yields):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_ARGUMENTS: Final = re.compile(r"^\*\*Arguments\*\*\n\n(?:- .*\n)+\n?", re.MULTILINE)
_TITLES: Final = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises", "Yields": "Yields"}
_ITEM: Final = re.compile(r"^(?P<names>[*\w, .]+): (?P<text>.*)", re.DOTALL)
_PAGE_NAMED: Final = re.compile(r"docs/reference/(\w+)\.md")
_ANNOTATED: Final = re.compile(r"^(\w+: [^=]+)=")
_MENTION: Final = re.compile(r"`(?P<name>[A-Z]\w+(?:\.\w+)?)`")

_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


def render() -> str:
    """Return the whole page."""
    chapters = [_chapter(title, *found) for title, found in _CHAPTERS.items()]
    plugin = f"## For pytest: {_PLUGIN}\n\n{_text(_tree(_PLUGIN))}"
    return _linked("\n".join([_INTRODUCTION, *chapters, plugin, _ELSEWHERE]))


def errors() -> list[str]:
    """Names of the public errors, which have a page of their own."""
    package = importlib.import_module("aioproducer")
    found = [name for name in package.__all__ if inspect.isclass(getattr(package, name))]
    return [name for name in found if issubclass(getattr(package, name), BaseException)]


def names() -> list[str]:
    """Every name that the page explains or says where it is explained."""
    here = [name for _, found in _CHAPTERS.values() for name in found]
    return [*here, "ProducerConfig", "ProducerOptions", "TopicOptions", "ProducerStatistics", "__version__", *errors()]


def modules() -> list[str]:
    """The modules of the names that the page explains."""
    return list({module: None for module, _ in _CHAPTERS.values()})


def _chapter(title: str, module: str, found: list[str]) -> str:
    public = importlib.import_module(module)
    return "\n".join([f"## {title}\n", *(_entry(name, getattr(public, name)) for name in found)])


def _entry(name: str, value: type) -> str:
    definition = _definition(value)
    if not isinstance(definition, ast.ClassDef):
        return f"### `{name}`\n\n{_code(_signature(definition))}\n{_text(definition)}\n"
    fields = "".join(_fields(value))
    methods = [
        f"#### `{name}.{method.name}`\n\n{_code(_signature(method))}\n{_text(method)}" for method in _methods(value)
    ]
    about = _text(definition)
    if name in _MADE_FOR_USERS:
        about = _ARGUMENTS.sub("", about).rstrip() + "\n"
    head = f"### `{name}`\n\n{_code(_head(definition, value))}\n{about}"
    return "\n".join([head, *([f"**Attributes**\n\n{fields}"] if fields else []), *methods])


# What stands in the source


@cache
def _tree(module: str) -> ast.Module:
    path = Path(str(importlib.import_module(module).__file__))
    if path.suffix != ".py":
        path = path.with_name(path.name.partition(".")[0] + ".pyi")
    return ast.parse(path.read_text("utf-8"))


def _definition(value: type) -> ast.ClassDef | _Function:
    for node in reversed(_tree(value.__module__).body):  # of overloads, the one that implements them
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == value.__name__:
            return node
    raise LookupError(f"{value} is not where it says it is")


def _bodies(kind: type) -> Iterator[list[ast.stmt]]:
    """Yield what its own class and its parents in this package define."""
    for parent in kind.__mro__:
        if parent.__module__.startswith("aioproducer"):
            definition = _definition(parent)
            assert isinstance(definition, ast.ClassDef)
            yield definition.body


def _methods(kind: type) -> list[_Function]:
    """Public methods by the order of their definition; of overloads, the one that implements them."""
    if issubclass(kind, BaseException):
        return []
    found: dict[str, _Function] = {}
    for body in _bodies(kind):
        own = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        found |= {name: node for name, node in own.items() if _is_public(name) and name not in found}
    return [node for node in found.values() if not _is_property(node)]


def _is_public(name: str) -> bool:
    return bool(name) and name[0] != "_"


def _fields(kind: type) -> Iterator[str]:
    """Yield a line for each attribute: fields, members of an enumeration, properties."""
    seen: set[str] = set()
    for body in _bodies(kind):
        for statement, following in pairwise([*body, ast.Pass()]):
            name, annotation, text = _field(statement, following)
            if _is_public(name) and name not in seen:
                seen.add(name)
                about = f": {text}" if text else ""
                yield f"- `{name}`{f' (`{annotation}`)' if annotation else ''}{about}\n"


def _field(statement: ast.stmt, following: ast.stmt) -> tuple[str, str, str]:
    text = ""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        text = " ".join(str(following.value.value).split())
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
            return name, ast.unparse(annotation), text
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name, "", text
        case ast.FunctionDef(name=name, returns=returns) if returns is not None and _is_property(statement):
            return name, ast.unparse(returns), " ".join((ast.get_docstring(statement) or "").split())
    return "", "", ""


def _is_property(function: _Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in function.decorator_list)


# How it is shown


def _head(definition: ast.ClassDef, kind: type) -> str:
    """Return how the class is called, or, where it has no constructor of its own, what it is made from."""
    constructors = [
        node for body in _bodies(kind) for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    if constructors and kind.__name__ not in _MADE_FOR_USERS and not issubclass(kind, BaseException):
        return "class " + _signature(constructors[0]).removeprefix("def ").replace("__init__", kind.__name__, 1)
    bases = ", ".join(base for base in map(ast.unparse, definition.bases) if not base.startswith("_"))
    return f"class {kind.__name__}({bases})" if bases else f"class {kind.__name__}"


def _signature(function: _Function) -> str:
    function = copy.deepcopy(function)
    positional = function.args.args
    if positional and positional[0].arg in {"self", "cls"}:
        del positional[0]
    opening = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    returns = "" if function.returns is None or function.name == "__init__" else f" -> {ast.unparse(function.returns)}"
    _name_fields(function.args)
    arguments = [_ANNOTATED.sub(r"\1 = ", argument) for argument in _split(ast.unparse(function.args))]
    line = f"{opening} {function.name}({', '.join(arguments)}){returns}"
    if len(line) <= _LINE:
        return line
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{opening} {function.name}(\n{lines}){returns}"


def _name_fields(arguments: ast.arguments) -> None:
    """Put the keywords of `**fields: Unpack[RecordFields[...]]` in its place."""
    fields = arguments.kwarg
    named = {} if fields is None or fields.annotation is None else keywords_of(ast.unparse(fields.annotation))
    for name, type_ in named.items():
        arguments.kwonlyargs.append(ast.arg(name, ast.parse(type_, mode="eval").body))
        arguments.kw_defaults.append(ast.Constant(None))
        arguments.kwarg = None


def _split(arguments: str) -> Iterator[str]:
    """Split at the commas that are not within brackets."""
    depth, start = 0, 0
    for position, character in enumerate(arguments):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            yield arguments[start:position].strip()
            start = position + 1
    yield arguments[start:].strip()


def _code(text: str) -> str:
    return f"```py\n{text}\n```\n"  # `python` blocks are programs, which a test runs


def _text(node: ast.Module | ast.ClassDef | _Function) -> str:
    """Return a docstring as Markdown."""
    docstring = (ast.get_docstring(node) or "") + "\n"
    return _SECTION.sub(lambda found: _section(found[1], found[2]), docstring).rstrip() + "\n"


def _section(name: str, body: str) -> str:
    body = textwrap.dedent(body).strip()
    if name in {"Returns", "Yields"}:
        return f"**{_TITLES[name]}** {_flat(body)}\n\n"
    items = [_item(item) for item in re.split(r"\n(?=\S)", body)]
    return f"**{_TITLES[name]}**\n\n" + "".join(f"- {item}\n" for item in items) + "\n"


def _item(text: str) -> str:
    match = _ITEM.match(text)
    if match is None:
        return _flat(text)
    called = ", ".join(f"`{name.strip()}`" for name in match["names"].split(","))
    return f"{called}: {_flat(match['text'])}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _linked(page: str) -> str:
    """Make links of the pages in running text, and of the names that have a heading here."""
    page = _PAGE_NAMED.sub(r"[\1](\1.md)", page)
    headings = set(re.findall(r"^#{3,4} `([^`]+)`", page, re.MULTILINE))

    def link(found: re.Match[str]) -> str:
        name = found["name"]
        return f"[`{name}`](#{name.lower().replace('.', '')})" if name in headings else found[0]

    lines = [line if line.startswith("#") else _MENTION.sub(link, line) for line in page.split("\n")]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), "utf-8")
