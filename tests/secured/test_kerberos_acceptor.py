"""Our side of GSS-API against the broker's side in this process, with real tickets and without a broker."""

import contextlib
import gc
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproducer._network.kerberos import KerberosContext, KerberosSettings, TicketSource
from aioproducer._protocol.sasl_exchange import Conversation, Message, TicketWanted, Work
from aioproducer._protocol.sasl_mechanisms import Gssapi
from aioproducer.errors import AuthenticationError, TicketError
from aioproducer.testing.cluster_security import BROKER_PRINCIPAL
from aioproducer.testing.kafka import Kdc


@pytest.fixture
def source(kdc: Kdc) -> TicketSource:
    return TicketSource(KerberosSettings("kafka", "alice", str(kdc.keytab("alice")), uses_cache=False))


class Acceptor:
    """The broker's side, with its key."""

    def __init__(self, kdc: Kdc) -> None:
        self._gss = import_module("gssapi")
        keytab = str(kdc.keytab(BROKER_PRINCIPAL))
        credentials = self._gss.Credentials(usage="accept", store={"keytab": keytab})
        self._context = self._gss.SecurityContext(usage="accept", creds=credentials)
        self.user = ""
        self.choice = b""

    def answer(self, token: bytes) -> bytes:
        if not self._context.complete:
            return bytes(self._context.step(token))
        if not self.user:
            self.user = str(self._context.initiator_name)
            assert token == b""
            return bytes(self._context.wrap(struct.pack(">I", 1 << 24), False).message)
        self.choice = bytes(self._context.unwrap(token).message)
        return b""


def begun(source: TicketSource, host: str = "localhost") -> tuple[Conversation, bytes]:
    """Start a conversation, and return it with its first token."""
    mechanism = Gssapi(lambda ticket: source.open_context(host, ticket), user="alice", service=source.service(host))
    conversation = mechanism.converse()
    assert isinstance(next(conversation), TicketWanted)
    step = conversation.send(source.acquire())
    assert isinstance(step, Work)
    message = conversation.send(step.run())
    assert isinstance(message, Message)
    return conversation, message.token


def finish(conversation: Conversation, token: bytes, acceptor: Acceptor) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            message = conversation.send(acceptor.answer(token))
            assert isinstance(message, Message)
            token = message.token


def test_acceptor_learns_the_principal_and_the_layer(kdc: Kdc, source: TicketSource) -> None:
    acceptor = Acceptor(kdc)
    finish(*begun(source), acceptor)

    assert acceptor.user == "alice@EXAMPLE.TEST"
    assert acceptor.choice == b"\x01\0\0\0"


def test_first_principal_of_a_keytab_is_taken_if_none_is_given(kdc: Kdc) -> None:
    source = TicketSource(KerberosSettings("kafka", None, str(kdc.keytab("alice")), uses_cache=False))
    acceptor = Acceptor(kdc)
    assert source.user == "the principal of the keytab"
    finish(*begun(source), acceptor)

    assert acceptor.user == "alice@EXAMPLE.TEST"


def test_ticket_cache_comes_first_and_is_never_written(kdc: Kdc, tmp_path: Path) -> None:
    kdc.add("ivan")
    cache = tmp_path / "tickets"
    both = TicketSource(KerberosSettings("kafka", None, str(kdc.keytab("alice")), uses_cache=True, cache=str(cache)))
    assert (both.acquire().user, both.acquire().is_own) == ("alice@EXAMPLE.TEST", True)
    assert not cache.exists()
    kdc.kinit("ivan", cache)

    assert (both.acquire().user, both.acquire().is_own) == ("ivan@EXAMPLE.TEST", False)


def test_expired_ticket_is_acquired_again_from_the_keytab(kdc: Kdc) -> None:
    keytab = kdc.add("judy", max_life="1s")
    source = TicketSource(KerberosSettings("kafka", "judy", str(keytab), uses_cache=False))
    first, second = source.acquire(), source.acquire()

    assert first.life_s <= 1.0
    assert first.credentials is not second.credentials
    assert second.life_s > 0.0


def test_keytab_that_is_replaced_is_read_again(kdc: Kdc, tmp_path: Path) -> None:
    keytab = kdc.add("mallory")
    source = TicketSource(KerberosSettings("kafka", "mallory", str(keytab), uses_cache=False))
    assert source.acquire().user == "mallory@EXAMPLE.TEST"
    new = kdc.write_keytab("mallory", tmp_path / "new", new_key=True)
    with pytest.raises(TicketError, match="another key for mallory"):
        source.acquire()
    new.replace(keytab)

    assert source.acquire().user == "mallory@EXAMPLE.TEST"


def test_host_without_a_principal_is_named(source: TicketSource) -> None:
    with pytest.raises(TicketError, match=r"does not know kafka/other\.example\.test"):
        begun(source, "other.example.test")


@pytest.fixture
def answered(kdc: Kdc, source: TicketSource) -> Iterator[tuple[KerberosContext, bytes]]:
    context = source.open_context("localhost", source.acquire())
    yield context, Acceptor(kdc).answer(context.first_token())
    gc.collect()


def test_right_answer_establishes_the_context(answered: tuple[KerberosContext, bytes]) -> None:
    context, right = answered
    assert not context.is_established
    assert context.next_token(right) == b""
    assert context.is_established


def read(context: KerberosContext, answer: bytes, offer: bytes) -> None:
    context.next_token(answer)
    context.unwrap(offer)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=200), at=st.integers(0, 10_000), is_mutation=st.booleans())
def test_broker_that_does_not_prove_its_key_is_refused(
    kdc: Kdc, source: TicketSource, *, garbage: bytes, at: int, is_mutation: bool
) -> None:
    """Any other answer than the right one is an error with the broker's name, and nothing else."""
    context = source.open_context("localhost", source.acquire())
    right = Acceptor(kdc).answer(context.first_token())
    at %= len(right)
    wrong = right[:at] + bytes((right[at] ^ 0x55,)) + right[at + 1 :] if is_mutation else garbage
    with pytest.raises(AuthenticationError, match="has not proved that it is kafka/localhost"):
        read(context, wrong, garbage)
