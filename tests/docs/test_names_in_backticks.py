"""Each bare name in backticks, in pages and docstrings, exists in the code: what was renamed or removed is not told of.

A name is known if the code of the repository, its comments and docstrings left out, has the word: as a name, or within
a text such as an option's. A parameter of a function counts only for the docstrings of its own file and for pages. The
names that a page's code blocks show are known to that page.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
CODE = ("aioproducer", "tests", "examples", "docs")
PAGES = [page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if page.name != "CHANGELOG.md"]
TEXTS_WITH_NAMES = ["pyproject.toml", *(".ci/run", ".github/workflows/ci.yml", "tests/protocol/golden/make_golden.jsh")]

WORD = re.compile(r"[A-Za-z_]\w*")
OPTION = re.compile(r"\w[\w.-]*")
IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
BARE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?:\(\))?")
FENCED = re.compile(r"^(```|~~~)\S*\n(?P<code>.*?)^\1", re.DOTALL | re.MULTILINE)
NATIVE_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
OF_JAVA = re.compile(r"(?:[\w]+\.)*[a-z]+[A-Z]\w*(?:\(\))?")
"""camelCase, which no name of this package is."""

PAGE_OF_JAVAS_CLASSES = "docs/explanation/from_kafka_to_here.md"
ELSEWHERE = {
    *("CoordinatorGroupRebalance.perform_group_join", "GroupCoordinator.ensure_coordinator_known"),  # aiokafka's
    *("Fetcher", "TopicPartitionState", "producer._txn_manager"),  # aiokafka's
    *("KafkaConfigurationError", "add_errback", "metadata.serialized_key_size", "produce_batch"),  # other clients'
    *("group_metadata()", "sender.wakeup()", "pypi"),  # other clients', Java's, of the index of packages
    *("LongDeserializer", "TransactionCoordinator.isValidProducerId"),  # Java's
    *("__key_schema_id", "protoc", "SSL_write", "trustme", "nohup"),  # headers, programs, libraries
    *("Pool.terminate", "logging.handlers.QueueHandler", "loop.start_tls", "sock_connect"),  # Python's
    "sys.UnraisableHookArgs",  # Python's
    *("PROMETHEUS_MULTIPROC_DIR", "PYTHON_CONFIGURE_OPTS", "PYTHON_DATA_SOURCE_ERROR"),  # variables, Spark's errors
    *("app.test_client()", "graceful_timeout", "transaction.on_commit", "worker_shutdown"),  # servers and frameworks
    *("KeyValueRenderer", "SpecificationVersion"),  # of structlog and Confluent
    *("StreamingQueryListener", "StreamingQueryProgress.sources"),  # of Spark
    *("TimeoutStopSec", "stop_grace_period"),  # of systemd and Docker
    *("KafkaUser", "OTEL_SEMCONV_STABILITY_OPT_IN"),  # of Strimzi and OpenTelemetry
    *("messaging.message.conversation_id", "messaging.message.envelope.size"),  # OpenTelemetry's, not set here
    *("Class.member", "sasl_kerberos_", "_avg", "_max"),  # patterns
}
"""Names of other projects, whose code is not here."""


class Told(NamedTuple):
    """A bare name in backticks, and where it stands."""

    place: str
    name: str


class NamesOfFile(NamedTuple):
    defined: set[str]
    """Functions, classes, attributes, variables that are assigned, and words of texts: known everywhere."""

    used: set[str]
    """These and parameters: known in the file itself."""

    docstrings: list[str]


@cache
def sources() -> list[Path]:
    found = [path for folder in CODE for path in (ROOT / folder).rglob("*.py*")]
    kinds = {".py", ".pyi", ".pyx", ".pxd"}
    return [path for path in [*found, *ROOT.glob("*.py")] if path.suffix in kinds and path != Path(__file__)]


@cache
def names_of(path: Path) -> NamesOfFile:
    text = path.read_text("utf-8")
    if path.suffix in {".pyx", ".pxd"}:
        docstrings = NATIVE_DOCSTRING.findall(text)
        words = set(WORD.findall(re.sub("#.*", "", NATIVE_DOCSTRING.sub("", text))))
        return NamesOfFile(words, words, docstrings)
    tree = ast.parse(text)
    told = list(docstrings_of(tree))
    left_out = {id(each) for each in told}
    nodes = [node for node in ast.walk(tree) if id(node) not in left_out]
    defined = {name for node in nodes for name in definitions_of(node)}
    variables = {name for node in nodes for name in variables_of(node)}
    return NamesOfFile(defined, defined | variables, [str(each.value) for each in told])


def docstrings_of(tree: ast.Module) -> Iterator[ast.Constant]:
    """The texts that stand alone, also those under a field or constant."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text


def definitions_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield from WORD.findall(text)
            yield from OPTION.findall(text)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.alias(name=name):
            yield from name.split(".")
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            yield name


def variables_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            yield name


@cache
def known_everywhere() -> frozenset[str]:
    texts = [(ROOT / path).read_text("utf-8") for path in TEXTS_WITH_NAMES if (ROOT / path).exists()]
    return frozenset(
        {*dir(builtins), *keyword.kwlist, *(path.stem for path in sources()), *(path.parent.name for path in sources())}
        | {word for text in texts for word in OPTION.findall(text)}
        | set().union(*(names_of(path).defined for path in sources()))
    )


@cache
def used_anywhere() -> frozenset[str]:
    return frozenset().union(*(names_of(path).used for path in sources()))


def is_known(name: str, also: AbstractSet[str]) -> bool:
    def known(word: str) -> bool:
        return word in known_everywhere() or word in also

    bare = name.removesuffix("()")
    metric = bare.removeprefix("kafka_producer_").replace("_", "-")
    if name in ELSEWHERE or OF_JAVA.fullmatch(name) or any(map(known, [bare, bare.replace(".", "_"), metric])):
        return True
    return "." in bare and all(map(known, bare.split(".")))


def unknown_in_docstrings(path: Path) -> Iterator[Told]:
    names = names_of(path)
    for name in {name for text in names.docstrings for name in IN_BACKTICKS.findall(text)}:
        if BARE_NAME.fullmatch(name) and not is_known(name, names.used):
            yield Told(str(path.relative_to(ROOT)), name)


def unknown_in_page(page: Path) -> Iterator[Told]:
    text = page.read_text("utf-8")
    shown = {word for block in FENCED.finditer(text) for word in WORD.findall(block["code"])}
    also = shown | used_anywhere()
    for name in set(IN_BACKTICKS.findall(FENCED.sub("", text))):
        if BARE_NAME.fullmatch(name) and not is_known(name, also):
            yield Told(str(page.relative_to(ROOT)), name)


def is_of_javas_classes(told: Told) -> bool:
    return told.place == PAGE_OF_JAVAS_CLASSES and (told.name[0].isupper() or told.name == "muted")


def test_names_in_docstrings_exist() -> None:
    unknown = [told for path in sources() for told in unknown_in_docstrings(path)]

    assert sorted(unknown) == []


def test_names_on_pages_exist() -> None:
    unknown = [told for page in PAGES for told in unknown_in_page(page) if not is_of_javas_classes(told)]

    assert sorted(unknown) == []


def test_a_name_that_is_gone_is_unknown() -> None:
    assert is_known("Producer.flush()", set())
    assert is_known("linger.ms", set())
    assert not is_known("Producer.gone_method", set())
    assert not is_known("an_option_that_is_gone", set())
