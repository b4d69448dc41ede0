"""JAAS texts and property files through Kafka's own JaasContext and Utils.loadProps, beside ours. One JVM reads all."""

import asyncio
import base64
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from aioproducer.config._jaas import parse_jaas
from aioproducer.config._properties_file import read_properties
from aioproducer.errors import ConfigurationError
from aioproducer.testing.kafka.cache import TESTED_VERSIONS, kafka_jars
from aioproducer.testing.kafka.programs import java_command

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).parent / "java" / "ReadTexts.java"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULE = "/module"

OPTION_TEXTS = [
    "",
    'username="alice" password="a b"',
    "username='alice' password='a b'",
    "password='p;w'",
    "username='al\"ice'",
    'username="al\'ice"',
    "password=\"a\\\"b\" other='a\\'b'",
    'password="a\\101b"',
    'password="\\0\\7\\10\\77\\100\\377\\400\\477\\1234\\8\\9"',
    'password="\\a\\b\\f\\n\\r\\t\\v\\q\\\\"',
    'password="\\x41\\u0041"',
    'password="a\\\nb"',
    'password="a\nother=b',
    "password='a\r\nother=b",
    'password=""',
    "password=''",
    "username=alice",
    "username=al.i-c_e$9",
    "username=-alice",
    "username=.alice",
    "username=_alice",
    "username=$alice",
    "username=9lives",
    "password=123",
    "password=-1.5",
    "password=--1",
    "password=1.2.3",
    "password=p;w",
    "password=p@ss",
    "password=p+w",
    "password=p/w",
    "password=p/w\n other=b",
    "password=p//w\n other=b",
    "password=p/*w*/ other=b",
    "password=p /* ; \n * / **/ other=b",
    "password=p /*/ other=b */ third=c",
    "password=p /* open",
    "password=p /",
    "password=p /\nother=b\nthird=c",
    "keyTab=/etc/x.keytab useKeyTab=true",
    "useKeyTab='true' keyTab='/etc/x.keytab'",
    "principal=alice@EXAMPLE.COM",
    'principal="alice@EXAMPLE.COM"',
    "username",
    "username=",
    'username=="a"',
    'username "a"',
    'username : "a"',
    'username = "a"',
    'username\n=\n"a"',
    '"username"="a"',
    "'user name'='a'",
    '12="a" username="b"',
    'username="a" username="b"',
    'USERNAME="a"',
    'username="a", password="b"',
    'username="ä€🌞" password=ä€🌞',
    "username=\x85x",
    "username=\xa0x",
    'username\x00=\x01"a"\x1f',
    'username="a\x00b"',
    "extension_logicalCluster=lkc-abc123 extension_identityPoolId='pool-1'",
    'password="{{ secret }}"',
    "password={{secret}}",
    "password=#x",
    '#password="x"',
    'password="a"b"c"',
    'password=a"b"',
    'password="a',
    'password="a\\',
    "password='",
    "x=\\",
]
JAAS_TEXTS = [
    *(f"{PLAIN} required {text};" for text in OPTION_TEXTS),
    "",
    ";",
    PLAIN,
    f"{PLAIN};",
    f"{PLAIN} required",
    f'{PLAIN} required a="b"',
    f"{PLAIN} required;;",
    f"{PLAIN} required; ",
    f"{PLAIN} required; // end",
    f"{PLAIN} required; {OAUTH} required;",
    f"{PLAIN} Required;",
    f"{PLAIN} REQUISITE;",
    f'{PLAIN} "sufficient";',
    f"{PLAIN} optional;",
    f"{PLAIN} unless;",
    f"{PLAIN} 5;",
    f'"{PLAIN}" required;',
    f"'{PLAIN}' 'required';",
    f"KafkaClient {{ {PLAIN} required; }};",
    f"# why\n{PLAIN} required;",
    f"// why\n{PLAIN} required;",
    f"/ why\n{PLAIN} required;",
    f"{PLAIN}\trequired\fa=b\v;",
    f"{PLAIN}required;",
    f"{PLAIN} required a=b; c=d;",
]
CONTENTS = [
    *(
        text.encode("latin-1")
        for text in (
            "",
            "a=1",
            "a = 1",
            "a:1",
            "a : 1",
            "a 1",
            "a\t1",
            "a\f1",
            "a",
            "=1",
            ":",
            " =",
            "a==1",
            "a=:1",
            "a = = 1",
            "a=1 ",
            "  a=1",
            "\ta=1",
            "\fa=1",
            "#a=1",
            "!a=1",
            "  # a=1",
            "a=1#b",
            "a#b=1",
            "a=1\\",
            "a=1\\\n",
            "a=1\\\n  2",
            "a=1\\\r\n  2",
            "a=1\\\r 2",
            "a=1\\\\\nb=2",
            "a=1\\\n\nb=2",
            "a=1\\\n#b=2",
            "a=1\\\n\\\n\\\n2",
            "a\\\n b=1",
            "\\\na=1",
            "\\\n#a=b",
            "\\\n  !a=b\nc=d",
            "\\\n\n#a=b",
            "\\\n\\\n#a=b",
            "# c \\\na=1",
            "a=1\rb=2",
            "a=1\r\rb=2",
            "a=1\n\n\nb=2",
            "a=1\na=2",
            "a=\na=2",
            "a\\ b=1",
            "a\\=b=1",
            "a\\:b=1",
            "a=b\\=c\\:d",
            "a\\tb=\\t\\n\\r\\f",
            "a=\\b\\a\\v\\q\\\"\\'",
            "a=\\u0041",
            "a=\\u004",
            "a=\\u00zz",
            "a=\\uuuu0041",
            "a=\\U0041",
            "\\u0061=1",
            "a=\\ud83c\\udf1e",
            "a=\\ud83c",
            "a=\\udf1e\\ud83c",
            "a=\\u0000",
            "a=caf\xe9",
            "\xe9=1",
            "a=\x85b\xa0c",
            "a=\x0bb",
            "a=\x1c1\x1d2",
            "a='b'",
            'a="b"',
            "a= \\ b",
            "a=b\\ ",
            "a=b\\\\ ",
            "a=\\",
            "\\",
            "\\=1",
            "a=\x1a",
            "a\x00=\x00b",
            "a,b=1",
            "a=1;b=2",
            "a.b.c=${d}",
            "a=\\u20ac\\\n  \\u20ac",
            "\\#a=1\n\\!b=2",
            "a=1\n \t\f\n#\n!\nb=2",
            f"sasl.jaas.config={PLAIN} required \\\n  username='u' \\\n  password=\"p\\\\w\";",
        )
    ),
    b"a=caf\xe9\nb=\xff",
]


def odd_texts(seed: int, pieces: list[str]) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(pieces, k=chance.randrange(14))) for _ in range(3_000)]


ODD_PIECES = [
    *"ab1.-_$=;,@#/*\\\"' \n\r\t0378xunfé€\x00\x85🌞",
    *('="', '" ', "='", "' ", "a=b ", "/*", "*/", "//", "\\1", "\\\n", " required "),
]
ODD_OPTIONS = odd_texts(1, ODD_PIECES)
ODD_FILES = odd_texts(
    2, [*"ab=: \t\f\n\r\\#!u041;\x00\x0b\x85é", "\\u0041", "\\\n", "\\\\", "a=b\n", "\\ud83c", "\\udf1e"]
)


@pytest.fixture(scope="module")
def read_by_java() -> dict[tuple[str, bytes], dict[str, str] | None]:
    """What Java reads of each text; None if it refuses the text."""
    texts = [("jaas", text.encode("utf-16-be", "surrogatepass")) for text in every_jaas_text()]
    texts += [("properties", content) for content in every_content()]
    lines = "".join(f"{kind} {base64.b64encode(content).decode()}\n" for kind, content in texts)
    jars = asyncio.run(kafka_jars(TESTED_VERSIONS[0]))
    command = java_command(jars, str(PROGRAM))
    printed = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    return dict(zip(texts, map(said, printed.splitlines()), strict=True))


def every_jaas_text() -> list[str]:
    return [*JAAS_TEXTS, *(f"{PLAIN} required {text};" for text in ODD_OPTIONS), *ODD_OPTIONS]


def every_content() -> list[bytes]:
    # Some would be UTF-8, which Java takes for ISO-8859-1.
    odd = [text.encode("latin-1") for text in ODD_FILES]
    return [*CONTENTS, *(content for content in odd if content.isascii() or not is_utf8(content))]


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def said(line: str) -> dict[str, str] | None:
    if line == "refused":
        return None
    pairs = [pair.split(":") for pair in line.split(",") if pair]
    return {text_of(name): text_of(value) for name, value in pairs}


def text_of(encoded: str) -> str:
    return base64.b64decode(encoded).decode("utf-16-be", "replace")


def in_javas_units(found: Mapping[str, str]) -> dict[str, str]:
    """Half a pair of surrogates becomes what Java's encoder writes for it."""
    return {as_replaced(name): as_replaced(value) for name, value in found.items()}


def as_replaced(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def named(properties: Mapping[str, str]) -> dict[str, str]:
    """Without the empty name, under which Java has a backslash at the end of a file."""
    return {name: value for name, value in in_javas_units(properties).items() if name}


def jaas_by_us(text: str) -> dict[str, str] | None:
    try:
        found = parse_jaas(text)
    except ConfigurationError:
        return None
    return in_javas_units({**found.options, MODULE: found.module})


def test_jaas_text_means_what_it_means_to_java(read_by_java: dict[tuple[str, bytes], dict[str, str] | None]) -> None:
    differing = []
    for text in every_jaas_text():
        expected = read_by_java["jaas", text.encode("utf-16-be", "surrogatepass")]
        if expected is not None and expected[MODULE] not in {PLAIN, OAUTH}:
            expected = None  # a class that Java looks for only when it connects
        elif expected is not None:
            expected = {**expected, MODULE: expected[MODULE].rpartition(".")[2]}
        found = jaas_by_us(text)
        if found != expected:
            differing.append((text, expected, found))

    assert not differing[:10], f"{len(differing)} texts"


def test_property_file_means_what_it_means_to_java(
    read_by_java: dict[tuple[str, bytes], dict[str, str] | None], tmp_path: Path
) -> None:
    differing = []
    path = tmp_path / "client.properties"
    for content in every_content():
        path.write_bytes(content)
        try:
            found = named({name: each.value for name, each in read_properties(path).items()})
        except ConfigurationError:
            found = None
        expected = read_by_java["properties", content]
        if found != (None if expected is None else named(expected)):
            differing.append((content, expected, found))

    assert not differing[:10], f"{len(differing)} files"
