"""GSSAPI: the order of the tokens, the choice of no security layer, and brokers that do not play by the rules."""

from collections.abc import Callable

import pytest

from aioproducer._protocol.sasl.gssapi import Gssapi
from aioproducer._protocol.sasl.steps import Message, TicketWanted, Work
from aioproducer.errors import AuthenticationError, TicketError


class FakeContext:
    """A context whose tokens are texts; established after some answers."""

    def __init__(self, answers: int = 1) -> None:
        self.is_established = answers == 0
        self.seen: list[bytes] = []
        self._answers = answers

    def first_token(self) -> bytes:
        return b"ticket"

    def next_token(self, answer: bytes) -> bytes:
        self.seen.append(answer)
        self._answers -= 1
        self.is_established = self._answers == 0
        return b"" if self.is_established else b"more"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"wrapped ")


def converse(context: FakeContext, answer: Callable[[int], bytes]) -> list[Message]:
    """Run a conversation to its end and return the client's messages."""
    opened: list[object] = []

    def open_context(ticket: object) -> FakeContext:
        opened.append(ticket)
        return context

    conversation = Gssapi(open_context, user="alice@R", service="kafka/host").converse()
    assert isinstance(next(conversation), TicketWanted)
    step = conversation.send("a ticket")
    assert opened == ["a ticket"]
    assert isinstance(step, Work)
    messages: list[Message] = []
    result: object = step.run()
    try:
        while True:
            message = conversation.send(result)
            assert isinstance(message, Message)
            messages.append(message)
            result = answer(len(messages))
    except StopIteration:
        return messages


def broker(offer: bytes = b"\x01\0\0\0") -> Callable[[int], bytes]:
    return lambda number: {1: b"proof", 2: b"wrapped " + offer}.get(number, b"")


def test_three_tokens_prove_both_sides_and_choose_no_layer() -> None:
    context = FakeContext()
    messages = converse(context, broker())

    assert [message.token for message in messages] == [b"ticket", b"", b"wrapped \x01\0\0\0"]
    assert [message.is_last for message in messages] == [False, False, True]
    assert context.seen == [b"proof"]


def test_no_layer_is_chosen_among_those_that_are_offered() -> None:
    messages = converse(FakeContext(), broker(b"\x07\x00\xff\xff"))

    assert messages[-1].token == b"wrapped \x01\0\0\0"  # no layer, no longest message, no other user


def test_context_established_at_once_needs_no_empty_token() -> None:
    messages = converse(FakeContext(answers=0), lambda _: b"wrapped \x01\0\0\0")

    assert [message.token for message in messages] == [b"ticket", b"wrapped \x01\0\0\0"]


@pytest.mark.parametrize(
    "offer, words",
    [
        (b"\x06\0\0\0", "demands a security layer"),
        (b"\0\0\0\0", "demands a security layer"),
        (b"", "has 0 bytes"),
        (b"\x01\0\0\0alice", "has 9 bytes"),
    ],
)
def test_offer_that_cannot_be_taken_is_refused(offer: bytes, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        converse(FakeContext(), broker(offer))


def test_broker_that_never_ends_is_left() -> None:
    context = FakeContext(answers=100)
    with pytest.raises(AuthenticationError, match="comes to no end"):
        converse(context, lambda _: b"again")

    assert len(context.seen) == 5


def test_refusal_names_both_principals_and_what_to_look_at() -> None:
    error = Gssapi(lambda _: FakeContext(), user="alice@R", service="kafka/host").refusal(" ('no')")

    assert isinstance(error, TicketError)
    assert "refused the ticket of alice@R for kafka/host ('no'): the key in the broker's keytab" in str(error)
