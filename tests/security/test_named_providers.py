"""Token providers by name: objects of a module in the current folder, and the classes of the package."""

import sys
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer import ConfigurationError
from aioproducer.security import ClientCredentials, JwtBearer, MskIam
from aioproducer.security._named_providers import named_provider
from tests.fakes.token_endpoint import granted, token_endpoint

MODULE = """
    class Tokens:
        def __init__(self, user="nobody"):
            self.user = user

        async def token(self):
            return self.user

    given = Tokens("given")
    number = 5

    def make(user):
        return Tokens(user)

    def fail():
        raise ValueError("canary")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "our_tokens.py").write_text(textwrap.dedent(MODULE), "utf-8")
    (tmp_path / "broken_tokens.py").write_text("password = 'canary'\nraise ValueError(password)\n", "utf-8")
    (tmp_path / "torn_tokens.py").write_text("def (", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    for name in ("our_tokens", "broken_tokens", "torn_tokens"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "text, user",
    [
        ("our_tokens:given", "given"),
        ("our_tokens:Tokens", "nobody"),
        ("our_tokens:Tokens user=alice", "alice"),
        ("our_tokens:make user='a b'", "a b"),
        ("our_tokens:given.__class__ user=x=y", "x=y"),
    ],
)
async def test_object_of_a_module_is_the_provider_or_makes_it(text: str, user: str) -> None:
    assert await named_provider(text).token() == user


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is empty"),
        ("our_tokens", "it is not like package.module:object, and none of ClientCredentials, JwtBearer, MskIam"),
        ("our-tokens:given", "it is not like package.module:object"),
        ("our_tokens:", "it is not like package.module:object"),
        ("our_tokens:nothing", "the module our_tokens has no nothing"),
        ("no_such_tokens:given", "no_such_tokens cannot be imported: No module named 'no_such_tokens'"),
        ("broken_tokens:given", "importing broken_tokens raised ValueError at "),
        ("torn_tokens:given", "importing torn_tokens raised SyntaxError"),
        ("our_tokens:number", "it must be an object with async def token(), not int"),
        ("our_tokens:make", "missing a required argument: 'user'"),
        ("our_tokens:make users=alice", "missing a required argument: 'user'"),
        ("our_tokens:make user=alice user=bob", "the argument user is given twice"),
        ("our_tokens:make alice", "an argument is not like NAME=VALUE"),
        ("our_tokens:make user='alice", "No closing quotation"),
        ("our_tokens:fail", "making it raised ValueError"),
        ("our_tokens:given user=alice", "it is an object already, and takes no arguments"),
        ("MskIam", "missing a required argument: 'region'"),
        ("MskIam region=x profile=a role_arn=b", "profile and role_arn exclude each other"),
        ("ClientCredentials url=https://h client_id=a client_secret=canary", "client_secret must be env:VARIABLE or"),
        ("ClientCredentials url=http://h client_id=a client_secret=env:S", "would send the secret in the clear"),
        ("ClientCredentials url=https://h client_id=a client_secret=env:S timeout_s=x", "timeout_s must be a number"),
        ("ClientCredentials url=https://h extensions=a", "give each part of extensions as extensions.NAME=VALUE"),
        ("ClientCredentials url=https://h ssl_context=a client_id=a client_secret=env:S", "ssl_context is an object"),
    ],
)
def test_provider_that_cannot_be_had_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        named_provider(text)

    assert words in str(caught.value)
    assert caught.value.option == "sasl_token_provider"
    shown = traceback.TracebackException.from_exception(caught.value)
    assert "canary" not in "".join(shown.format_exception_only())
    assert caught.value.__suppress_context__


async def test_client_credentials_are_made_of_text(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with token_endpoint() as endpoint:
        endpoint.answer = granted()
        arguments = "scope=kafka extensions.logicalCluster=lkc-1 parameters.audience=a timeout_s=5"
        for secret in ("env:CLIENT_SECRET", "file:secret"):
            (folder / "secret").write_text("from the file", "utf-8")
            monkeypatch.setenv("CLIENT_SECRET", "from the variable")
            made = named_provider(
                f"ClientCredentials url={endpoint.url} client_id=billing client_secret={secret} {arguments}"
            )
            assert isinstance(made, ClientCredentials)
            token = await made.token()
            assert token.extensions == {"logicalCluster": "lkc-1"}

    assert [fields["audience"] for _, _, fields in endpoint.heard] == [["a"], ["a"]]
    assert len({headers["Authorization"] for _, headers, _ in endpoint.heard}) == 2


def test_other_classes_of_the_package_are_made_of_text() -> None:
    signing = "JwtBearer url=https://h/token private_key_file=key.pem private_key_password=env:P issuer=i subject=s"

    assert isinstance(named_provider(signing), JwtBearer)
    assert isinstance(named_provider("aioproducer.security:MskIam region=eu-central-1"), MskIam)
