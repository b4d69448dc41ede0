"""A Secret is shown nowhere, read again each time, and pickled by name."""

import copy
import json
import pickle
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.security import Secret

CANARY = "canary-5f1e"


@dataclass
class _Settings:
    password: Secret


def shown_forms(secret: Secret) -> list[str]:
    return [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        f"{secret!r}",
        "%s %r" % (secret, secret),  # noqa: UP031  # one of the forms
        str(asdict(_Settings(secret))),
        repr(_Settings(secret)),
        json.dumps({"password": secret}, default=str),
        repr(copy.deepcopy([secret])),
    ]


def test_secret_given_as_text_is_hidden_in_every_form() -> None:
    secret = Secret(CANARY)
    assert all(CANARY not in form and "<hidden>" in form for form in shown_forms(secret))
    assert secret.reveal() == CANARY


def test_secret_has_no_state_to_show() -> None:
    secret = Secret(CANARY)
    with pytest.raises(TypeError):
        vars(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError, match="no state"):
        secret.__getstate__()


def test_secret_given_as_text_is_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"use Secret\.from_env") as refused:
        pickle.dumps({"password": Secret(CANARY)})
    assert CANARY not in "".join(traceback.format_exception(refused.value))


def test_secret_of_variable_is_read_later_and_pickled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    secret = Secret.from_env("KAFKA_PASSWORD")
    pickled = pickle.dumps(secret)
    assert CANARY.encode() not in pickled
    assert pickle.loads(pickled) == secret
    assert secret.reveal() == CANARY
    monkeypatch.setenv("KAFKA_PASSWORD", "new")
    assert secret.reveal() == "new"
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(ConfigurationError, match="'KAFKA_PASSWORD' of a Secret is not set"):
        secret.reveal()


def test_secret_of_file_is_read_without_its_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "password"
    secret = Secret.from_file(path)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        secret.reveal()
    path.write_bytes(b"pass word \r\n")
    assert secret.reveal() == "pass word "
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert all("pass word" not in form for form in shown_forms(secret))
    path.write_bytes(CANARY.encode() + b"\xff")
    with pytest.raises(ConfigurationError, match="is not UTF-8") as refused:
        secret.reveal()
    assert CANARY not in "".join(traceback.format_exception(refused.value, chain=True))


def test_secrets_are_equal_by_source_and_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret.from_env("a") != Secret("a")
    assert Secret.from_env("a") != Secret.from_file("a")
    assert len({Secret("a"), Secret("a"), Secret("é")}) == 2
    assert Secret("a") != "a"


@pytest.mark.parametrize("value", [b"bytes", None, 1])
def test_secret_of_another_type_is_refused_without_its_value(value: object) -> None:
    with pytest.raises(TypeError, match="is made of a str, not"):
        Secret(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a str, not"):
        Secret.from_env(value)  # type: ignore[arg-type]


def test_byte_order_mark_is_no_part_of_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"\xef\xbb\xbfpassword\r\n")

    assert Secret.from_file(path).reveal() == "password"


def said_by(refused: BaseException) -> str:
    contexts = [refused, refused.__cause__, refused.__context__]
    return "".join(f"{each} {each!r}" for each in contexts) + "".join(traceback.format_exception(refused))


def test_text_that_utf_8_cannot_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", f"p\udce4ss-{CANARY}")  # as Python reads a variable in Latin-1
    path = tmp_path / "password"
    path.write_bytes(f"päss-{CANARY}".encode("latin-1"))
    cases = (
        (lambda: Secret(f"p\ud83dss-{CANARY}"), "the text of a Secret is not valid Unicode: it has lone surrogates"),
        (Secret.from_env("KAFKA_PASSWORD").reveal, "variable 'KAFKA_PASSWORD' of a Secret is not valid Unicode"),
        (Secret.from_file(path).reveal, "of a Secret is not UTF-8"),
    )
    for call, words in cases:
        with pytest.raises(ConfigurationError, match=words) as refused:
            call()
        assert CANARY not in said_by(refused.value)


def test_secrets_of_files_with_any_name_are_compared() -> None:
    assert Secret.from_file("a\udcff") == Secret.from_file("a\udcff") != Secret.from_file("b")
