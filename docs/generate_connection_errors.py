"""Writes `how-to/when_it_does_not_connect.md` from the tables of errors, and from errors that the code itself makes.

Run it after changing one of these: `python docs/generate_connection_errors.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from aioproducer._network import kerberos, tls_errors
from aioproducer._network.proxy import Proxy, ask
from aioproducer._network.tls_errors import Phase, TlsAttempt, closed_error, tls_error
from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.sasl_exchange import Bearer, Mechanism, RefusedError, exchange
from aioproducer._protocol.sasl_mechanisms import OAuthBearer, Plain, Scram, check_token
from aioproducer.cli import broker_check

KeyT = TypeVar("KeyT", int, str)

PAGE = Path(__file__).parent / "how-to" / "when_it_does_not_connect.md"

_VERSIONS: Final = ApiVersions({17: (0, 1), 36: (0, 2)})
_CLAIMS: Final = "e30.eyJzdWIiOiJhbGljZSIsImF1ZCI6ImthZmthIn0.x"
_WITHOUT, _WITH = (TlsAttempt("kafka-1", given, given, ("kafka-2",)) for given in (False, True))

_PAGE: Final = """\
<!-- Written by docs/generate_connection_errors.py from the tables of errors: change them. -->

# When it does not connect

An error at `start` names the broker, what was found, and the option to change.
This page has the errors of connecting: the symptom, as it is seen on the wire or by `aioproducer diagnose`; what it
means; what to do.
`aioproducer diagnose --config client.properties HOST:PORT` tries each step by itself, and explains the first that
fails: [ten wrong set-ups, diagnosed](../evidence/diagnoses.md).

What is refused for good ends `start` at once; what may heal is tried until `max_block_ms` is over.
A token, password or ticket that cannot be fetched now may heal: the endpoint is away or busy, a provider or function
raises, no KDC answers. The error has `retriable=True`.
While the producer runs, both are tried again, and records end at their deadline with the reason as `last_broker_error`.

## Before anything is connected

A `ConfigurationError` names the option and what is allowed: options that do not fit together, a store that cannot be
read, a wrong password of a key.
[Connect with TLS](connect_with_tls.md) and [Connect to a secured cluster](connect_to_a_secured_cluster.md) have a block
for each way to connect.

## Names, addresses, networks

{network}
## Proxies

The error begins with the proxy's URL, its password hidden.
A refused user or password is an `AuthenticationError`, and ends `start` at once; all others are tried again.

{proxies}
## The certificate of the broker

The error is a `TlsVerificationError`. The number is OpenSSL's, as `openssl s_client` prints it too.

{verifications}
## What the other end says about TLS

The error is a `TlsRefusedError`, and quotes the alert.

{alerts}
## The beginning of TLS

{beginnings}
## Users, passwords, tokens

{sasl}
## Tickets of Kerberos

The error is a `TicketError`, and quotes what the library says. The number is that of `krb5.h`, which `KRB5_TRACE`
prints too.

{kerberos}
## Later, while it runs

{later}"""


class Row(NamedTuple):
    """A row of the page."""

    symptom: str
    means: str
    remedy: str

    @classmethod
    def of(cls, symptom: str, error: Exception) -> Row:
        """Return the row of an error whose text is "what was found: what to do"."""
        means, _, remedy = str(error).rpartition(": ")
        return cls(f"{symptom}: `{type(error).__name__}`", means, remedy)


def render() -> str:
    """Return the whole page."""
    parts = {
        "network": _network(),
        "proxies": _proxies(),
        "verifications": _verifications(),
        "alerts": _alerts(),
        "beginnings": _beginnings(),
        "sasl": _sasl(),
        "kerberos": _kerberos(),
        "later": _later(),
    }
    return _PAGE.format(**{name: _table(rows) for name, rows in parts.items()})


def _table(rows: Iterator[Row]) -> str:
    lines = [" | ".join(part.replace("|", "\\|") for part in row) for row in rows]
    return "| symptom | means | what to do |\n| --- | --- | --- |\n" + "".join(f"| {line} |\n" for line in lines)


def _network() -> Iterator[Row]:
    yield Row("a bootstrap name cannot be resolved", "this machine does not know the name", broker_check.LOOK)
    yield Row(
        '"broker 2 at ..., as the cluster advertises it, cannot be resolved"',
        "the bootstrap server was reached, and sends clients to a name that is not known here",
        broker_check.ADVERTISED,
    )
    yield Row("connection refused", "the machine is there, the port is closed", broker_check.REFUSED)
    yield Row("no connection in time", "the machine does not answer", broker_check.SWALLOWED)
    yield Row(
        "the bootstrap server is reached, localhost is refused", "a broker sees itself only", broker_check.THIS_MACHINE
    )
    yield Row(
        '"is none of allowed_brokers"',
        "the cluster sends clients to a host that your option does not allow",
        "add it to allowed_brokers, if it is one of yours",
    )


def _proxies() -> Iterator[Row]:
    socks, http = (Proxy(scheme, "proxy", 1080) for scheme in ("socks5h", "http"))
    cases = {
        "SOCKS5, reply 2": (socks, (b"\x05\x00", b"\x05\x02\x00\x01")),
        "SOCKS5, reply 5": (socks, (b"\x05\x00", b"\x05\x05\x00\x01")),
        "SOCKS5, no method is left": (socks, (b"\x05\xff",)),
        "HTTP 407": (http, (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",)),
        "HTTP 407, NTLM only": (http, (b"HTTP/1.1 407 Who\r\nProxy-Authenticate: NTLM\r\n\r\n",)),
        "HTTP 403": (http, (b"HTTP/1.1 403 Forbidden\r\n\r\n",)),
        "not a proxy": (http, (b"SSH-2.0-OpenSSH_9.9\r\n",)),
    }
    todo = {
        "SOCKS5, reply 2": "let the proxy allow host and port of each broker",
        "SOCKS5, reply 5": "the proxy reaches the broker's machine, and nothing listens there: look at the port",
        "SOCKS5, no method is left": "give user and password in proxy_url",
        "HTTP 407": "give user and password in proxy_url",
        "HTTP 407, NTLM only": "as the error says; no client of Kafka speaks NTLM, Negotiate or Digest to a proxy",
        "HTTP 403": "let the proxy allow CONNECT to host and port of each broker",
        "not a proxy": "look at host and port of proxy_url",
    }
    for symptom, (proxy, answers) in cases.items():
        error = _failure(lambda: _asked(proxy, answers))  # noqa: B023  # is called at once
        yield Row(symptom, str(error), todo[symptom])


def _asked(proxy: Proxy, answers: tuple[bytes, ...]) -> None:
    conversation = ask(proxy, "kafka-1", 9092)
    next(conversation)
    for answer in answers:
        conversation.send(answer)


def _verifications() -> Iterator[Row]:
    for trouble, codes in _by_trouble(tls_errors.VERIFICATIONS).items():
        remedy = trouble.remedy
        if tls_errors.ABOUT_TRUST.issuperset(codes):
            remedy = f"{remedy}{tls_errors.untrusted(_WITHOUT)}. If one is given: {tls_errors.untrusted(_WITH)}"
        yield Row(", ".join(map(str, codes)), trouble.means, remedy)
    for code, what in ((62, "name"), (64, "IP address")):
        error = ssl.SSLCertVerificationError()
        error.verify_code = code
        means, _, remedy = str(tls_error(error, Phase.HANDSHAKE, _WITH)).partition(". ")
        yield Row(f"{code} ({what})", means, remedy)


def _alerts() -> Iterator[Row]:
    words = ", ".join(_words(alert) for alert in tls_errors.CERTIFICATE_ALERTS)
    yield Row(words, *tls_errors.about_certificate("BAD_CERTIFICATE", _WITHOUT))
    yield Row("certificate expired", *tls_errors.about_certificate("CERTIFICATE_EXPIRED", _WITH))
    yield Row("any other of the first row, and a certificate is given", *tls_errors.about_certificate("", _WITH))
    for alert, trouble in tls_errors.ALERTS.items():
        yield Row(_words(alert), *trouble)


def _beginnings() -> Iterator[Row]:
    for trouble, reasons in _by_trouble(tls_errors.REASONS).items():
        yield Row(", ".join(reasons), *trouble)
    yield Row("handshake failure, once the handshake is over", *tls_errors.ENDED)
    yield Row(
        "closed or reset before the first answer, without TLS: `BrokerConnectionError`",
        "the other end does not speak Kafka's protocol, or only behind TLS",
        "is it the port of a Kafka listener? One with TLS needs security_protocol='SSL' or 'SASL_SSL'",
    )
    yield Row.of(
        "closed in the handshake (the third time in a row `TlsRefusedError`)", closed_error(Phase.HANDSHAKE, _WITHOUT)
    )
    yield Row.of("closed right after it", closed_error(Phase.FIRST_READ, _WITHOUT))
    yield Row.of("closed right after it, and a certificate is given", closed_error(Phase.FIRST_READ, _WITH))


def _by_trouble(table: Mapping[KeyT, tls_errors.Trouble]) -> dict[tls_errors.Trouble, list[KeyT]]:
    found: dict[tls_errors.Trouble, list[KeyT]] = {}
    for key, trouble in table.items():
        found.setdefault(trouble, []).append(key)
    return found


def _words(alert: str) -> str:
    return alert.lower().replace("_", " ")


def _sasl() -> Iterator[Row]:
    plain, scram, token = Plain("alice"), Scram("SCRAM-SHA-512", "alice", nonce="n"), OAuthBearer()
    words = "Authentication failed"
    yield Row.of("SaslAuthenticate answers 58, PLAIN or SCRAM", _refused(plain, _hello(), _verdict(58, words)))
    of_token = Scram("SCRAM-SHA-512", "an-id", nonce="n", is_token=True)
    yield Row.of("the same, with a delegation token", _refused(of_token, _hello(), _verdict(58, words)))
    invalid = _verdict(0, None, b'{"status":"invalid_token"}')
    yield Row.of("the same, with OAUTHBEARER", _refused(token, _hello(), invalid, _verdict(58, "{}")))
    yield Row.of("SaslHandshake answers 33", _refused(plain, _hello(33, "SCRAM-SHA-512")))
    yield Row.of("SaslHandshake answers 34", _refused(plain, _hello(34)))
    yield Row(
        "the first request closes the connection, three times in a row: `WrongListenerError`",
        "the listener wants SASL, and none is spoken",
        "set security_protocol and sasl_mechanism, or use the port of a listener without SASL",
    )
    principal = _refused(plain, _hello(), _verdict(58, "Cannot change principals"), repeats=True)
    yield Row(
        f"a session is renewed, 58: `{type(principal).__name__}`",
        "the password, token or certificate now names another user",
        "nothing: a new connection is made as the new user; for a role of AWS, fix the session's name",
    )
    yield Row.of("the first SCRAM message cannot be right", _refused(scram, _hello(), _verdict(0, None, b"r=x,s=,i=1")))
    unproved = _refused(scram, _hello(), _verdict(0, None, b"r=nx,s=c2FsdA==,i=4096"), _verdict(0, None, b"v=AAAA"))
    yield Row.of("the last SCRAM message cannot be right", unproved)
    line_break = _failure(lambda: check_token("a\n"))
    yield Row.of("before the token is sent", line_break)
    yield from _credentials()
    yield from _providers()
    yield Row(
        '"closed the connection during the authentication ..., without saying why": `BrokerConnectionError`',
        "the broker met an error of its own, or takes no token as long as this one (`sasl.server.max.receive.size`)",
        "look at the broker's log at that time",
    )
    yield Row(
        '"nothing has answered", "has not answered", "has not returned": `BrokerConnectionError`, or '
        "`MetadataTimeoutError` if `max_block_ms` is over first",
        "the step that the error names has no answer: the name server, the address, the proxy, TLS, ApiVersions, the "
        "authentication, or Metadata",
        "is it the port of a Kafka broker? Does a firewall or load balancer swallow what is sent?",
    )


def _credentials() -> Iterator[Row]:
    yield Row(
        '"the function of sasl_password raised ..." or returned something else: `CredentialsError`',
        "your function gave no password; the exception is the `__cause__`",
        "repair the function, or what it asks; it is asked again for each authentication",
    )
    yield Row(
        '"the function of sasl_password has not returned within 30 s": `AuthenticationError`',
        "what it asks does not answer in `socket_connection_setup_timeout_max_ms`",
        "look at the vault, and give the function a time-out of its own",
    )
    yield Row(
        '"sasl_token_provider raised ...": `TokenError`',
        "your provider gave no token; the exception is the `__cause__`",
        "repair the provider, or look at the identity provider",
    )
    yield Row(
        '"sasl_token_provider has not returned a token within 20 s": `TokenError`',
        "it has not answered in `sasl_login_connect_timeout_ms` and `sasl_login_read_timeout_ms` together",
        "look at the identity provider, and at the way to it",
    )
    yield Row(
        '"sasl_token_provider returned a token that has expired": `TokenError`',
        "the provider keeps tokens too long, or a clock is wrong",
        "let it return one that is valid now; look at the clocks",
    )


def _providers() -> Iterator[Row]:
    yield Row(
        '"the token endpoint ... answered 401, invalid_client": `TokenError`',
        "the identity provider refuses; what it says is quoted, and what was sent to it is hidden there",
        "look at client_id, client_secret and scope; `invalid_client` is a wrong id or secret",
    )
    yield Row(
        '"answered without an access_token: it is a page of HTML": `TokenError`',
        "a login page or a proxy answers at this URL",
        "give the URL of the token endpoint, which often ends in /token",
    )
    yield Row(
        '"the private key ... cannot sign with RS256": `TokenError`',
        "the file is DER, public, encrypted, of OpenSSH, or has a key of another kind",
        "as the error says: convert it, or give private_key_password or algorithm",
    )
    yield Row(
        '"AWS gives no credentials for MSK: none are found": `TokenError`',
        "AWS's libraries found nothing in environment, profile, container or instance",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine or pod a role",
    )


def _kerberos() -> Iterator[Row]:
    codes_of_text: dict[str, list[int]] = {}
    for code, text in kerberos.TEXTS.items():
        codes_of_text.setdefault(text, []).append(code)
    for text, codes in codes_of_text.items():
        means, _, remedy = text.format(user="alice@REALM", service="kafka/HOST@REALM", cache="").partition(": ")
        yield Row(", ".join(map(str, codes)), means, remedy)


def _later() -> Iterator[Row]:
    yield Row(
        "`tls_files_not_reloaded` in the log",
        "a changed certificate or key cannot be used as a whole",
        "nothing if the file is being written: the old ones serve until it is right",
    )
    yield Row(
        "`session_not_renewed` in the log",
        "the password function, the provider or the KDC gave nothing when a session was to be renewed",
        "look at what it asks; the session serves until it ends",
    )
    yield Row(
        "`token_fetch_failed` in the log",
        "the provider gives no new token",
        "look at the identity provider; the last valid token serves until it ends",
    )
    yield Row(
        "records end with `DeliveryTimeoutError`, whose `last_broker_error` is one of the above",
        "a password, token or certificate was changed on one side only",
        "change it on the other side too: the next attempt takes it, without a restart",
    )
    yield Row(
        "connections are lost at the same interval",
        "a load balancer or broker closes quiet or old connections",
        "nothing, they are made again; `connections_max_idle_ms` below that interval avoids it",
    )


def _refused(mechanism: Mechanism, *answers: bytes, repeats: bool = False) -> Exception:
    run = exchange(mechanism, _VERSIONS, repeats=repeats)
    waiting = list(answers)

    def converse() -> None:
        step: object = next(run)
        while True:
            result = _RESULTS.get(type(step).__name__)
            step = run.send(waiting.pop(0) if result is None else result)

    return _failure(converse)


_RESULTS: Final[dict[str, object]] = {
    "PasswordWanted": "-",
    "BearerWanted": Bearer(_CLAIMS, {}, 0.0),
    "SaltedPasswordWanted": b"-",
}


def _hello(code: int = 0, *mechanisms: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    return struct.pack(">hi", code, len(mechanisms)) + names


def _verdict(code: int, words: str | None, token: bytes = b"") -> bytes:
    text = b"\x00" if words is None else bytes((len(words) + 1,)) + words.encode()
    return struct.pack(">h", code) + text + bytes((len(token) + 1,)) + token + bytes(9)


def _failure(work: Callable[[], object]) -> Exception:
    try:
        work()
    except RefusedError as refused:
        return refused.error
    except Exception as error:  # noqa: BLE001  # that is the row
        return error
    raise AssertionError("no error")


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
