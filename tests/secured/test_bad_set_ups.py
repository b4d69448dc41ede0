"""Wrong set-ups of a producer: the error of its start, the same on embedded and real brokers, and nothing is harmed."""

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from aioproducer import (
    CredentialsError,
    TlsError,
    TlsRefusedError,
    TlsVerificationError,
    TokenError,
    UnsupportedMechanismError,
    WrongListenerError,
)
from aioproducer.errors import KafkaError
from aioproducer.testing import CertificateAuthority, unsecured_token
from tests.secured.ways import SECURITY, Options, Place, deliver, producer_of

Wrong: TypeAlias = Callable[[Place, Path], Options]
HOUR = dt.timedelta(hours=1)
OTHER = CertificateAuthority("another authority")


class HangingProvider:
    """Provider that never returns a token."""

    async def token(self) -> str:
        await asyncio.Event().wait()
        return ""


class Provider:
    """Provider of one token."""

    def __init__(self, value: object) -> None:
        self._value = value

    async def token(self) -> object:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Case(NamedTuple):
    wrong: Wrong
    error: type[KafkaError]
    words: tuple[str, ...]
    right: tuple[str, str] = ("SASL_SSL", "SCRAM-SHA-256")


def login(**changes: object) -> Wrong:
    return lambda place, _: place.client_options("SASL_SSL", "SCRAM-SHA-256") | changes


def at_listener(listener: str, way: tuple[str, str]) -> Wrong:
    """Options of one listener at the address of another."""
    return lambda place, _: place.client_options(*way) | {"bootstrap_servers": place.secured_servers(listener)}


def with_token(value: object, listener: str = "SASL_SSL") -> Wrong:
    return lambda place, _: place.client_options(listener, "OAUTHBEARER") | {"sasl_token_provider": Provider(value)}


def with_file(option: str, text: Callable[[], str], listener: str = "SSL", **others: object) -> Wrong:
    def options(place: Place, folder: Path) -> Options:
        path = folder / "store.pem"
        path.write_text(text(), "ascii")
        return place.client_options(listener) | {option: str(path)} | others

    return options


def at_name(host: str) -> Wrong:
    """Options that lead to the broker under a name, or address, that its certificate does not have."""

    def options(place: Place, _: Path) -> Options:
        right = place.client_options("SSL")
        server = str(right["bootstrap_servers"]).partition(",")[0]
        other = f"{host}:{server.rpartition(':')[2]}"
        return right | {"bootstrap_servers": other, "address_map": {other: server}}

    return options


def without_tokens(place: Place, _: Path) -> Options:
    times = {"sasl_login_connect_timeout_ms": 100, "sasl_login_read_timeout_ms": 100}
    return place.client_options("SASL_SSL", "OAUTHBEARER") | {"sasl_token_provider": HangingProvider()} | times


def client_certificate(authority: CertificateAuthority = SECURITY.authority, *, is_expired: bool = False) -> str:
    ends = -HOUR if is_expired else HOUR
    return authority.issue(usage=("client",), begins=-2 * HOUR, ends=ends).pem


def without_client_certificate(place: Place, _: Path) -> Options:
    options = place.client_options("MTLS")
    del options["ssl_keystore_location"]
    return options


TLS = ("SSL", "")
SCRAM = ("SASL_SSL", "SCRAM-SHA-256")
CASES: Mapping[str, Case] = {
    "34 wrong password": Case(login(sasl_password="canary-wrong"), CredentialsError, ("sasl_password", "'alice'")),
    "35 unknown user": Case(login(sasl_username="zoe"), CredentialsError, ("sasl_username", "'zoe'")),
    "36 mechanism": Case(
        lambda place, _: {**place.client_options("SIGNED", "PLAIN")},
        UnsupportedMechanismError,
        ("PLAIN", "OAUTHBEARER", "sasl_mechanism"),
    ),
    "37 plaintext to TLS": Case(at_listener("SSL", ("PLAINTEXT", "")), TlsError, ("security_protocol",), TLS),
    "38 TLS to plaintext": Case(at_listener("PLAINTEXT", TLS), TlsRefusedError, ("without TLS",), TLS),
    "38 TLS to SASL": Case(at_listener("SASL_PLAINTEXT", SCRAM), TlsRefusedError, ("without TLS",)),
    "39 no SASL to SASL": Case(
        at_listener("SASL_PLAINTEXT", ("PLAINTEXT", "")), WrongListenerError, ("security_protocol",)
    ),
    "40 SASL to none": Case(
        at_listener("PLAINTEXT", ("SASL_PLAINTEXT", "SCRAM-SHA-256")), WrongListenerError, ("wants no authentication",)
    ),
    "41 wrong CA": Case(
        with_file("ssl_truststore_location", lambda: OTHER.certificate),
        TlsVerificationError,
        ("ssl_truststore_location",),
        TLS,
    ),
    "42 another name": Case(
        at_name("kafka.example"),
        TlsVerificationError,
        ("is not for 'kafka.example'; it is for localhost, 127.0.0.1", "advertised.listeners"),
        TLS,
    ),
    "43 another address": Case(
        at_name("127.0.0.2"), TlsVerificationError, ("is not for '127.0.0.2'; it is for localhost",), TLS
    ),
    "45 no client certificate": Case(
        without_client_certificate, TlsRefusedError, ("ssl_keystore_location",), ("MTLS", "")
    ),
    "45 expired": Case(
        with_file("ssl_keystore_location", lambda: client_certificate(is_expired=True), "MTLS"),
        TlsRefusedError,
        ("our certificate", "ssl_keystore_location"),
        ("MTLS", ""),
    ),
    "45 another CA": Case(
        with_file("ssl_keystore_location", lambda: client_certificate(OTHER), "MTLS"),
        TlsRefusedError,
        ("our certificate", "ssl_keystore_location"),
        ("MTLS", ""),
    ),
    "47 expired token": Case(
        with_token(unsecured_token("alice", lifetime_s=60, issued_ago_s=7200)), TokenError, ("exp",)
    ),
    "47 another audience": Case(
        with_token(SECURITY.signer.token("alice", audience="other"), "SIGNED"), TokenError, ("aud", "other")
    ),
    "47 line break": Case(with_token(unsecured_token("alice") + "\n"), TokenError, ("character",)),
    "47 not text": Case(with_token(7), TokenError, ("sasl_token_provider", "int")),
    "48 raises": Case(with_token(RuntimeError("canary-token")), TokenError, ("sasl_token_provider", "RuntimeError")),
    "48 says why": Case(with_token(TokenError("the vault is sealed")), TokenError, ("the vault is sealed",)),
    "48 hangs": Case(without_tokens, TokenError, ("sasl_token_provider has not returned a token within 0.2 s",)),
    "48 nothing": Case(with_token(None), TokenError, ("sasl_token_provider", "None")),
}
"""By the row of the table of bad set-ups; those of certificates of brokers, and of networks, have other files."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_wrong_set_up_is_the_error_of_start_and_a_right_one_works_right_after(
    place: Place, name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    producer = producer_of(case.wrong(place, tmp_path), max_block_ms=30_000)
    with pytest.raises(case.error) as caught:
        await producer.start()
    await producer.close()

    text = str(caught.value)
    assert [word for word in case.words if word not in text] == [], text
    assert "alice-secret" not in text
    await deliver(place.client_options(*case.right))
