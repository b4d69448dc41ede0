"""Steps that an authentication asks of the connection: each is yielded, and its result is sent into the generator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from aioproducer._protocol.messages import HandshakeRequest
from aioproducer.errors import AuthenticationError


class Send(NamedTuple):
    """Send these requests at once, and resume with the payload of the first response."""

    requests: tuple[HandshakeRequest, ...]
    is_last: bool = False  # other requests may follow at once: the last token is among these


class NextResponse(NamedTuple):
    """Resume with the payload of the next response to a request of `Send`."""


class PasswordWanted(NamedTuple):
    """Resume with the password, a text."""


class BearerWanted(NamedTuple):
    """Resume with a `Bearer`."""


class Bearer(NamedTuple):
    """A token of OAUTHBEARER."""

    token: str
    extensions: Mapping[str, str]
    fetched_at: float  # wall-clock seconds, to tell whether it had expired

    def __repr__(self) -> str:
        return "Bearer(<hidden>)"


class SaltedPasswordWanted(NamedTuple):
    """Resume with the result of `compute`, which takes up to a second; an equal step has an equal result."""

    hash_name: str
    password: str
    salt: bytes
    iterations: int
    compute: Callable[[str, bytes, bytes, int], bytes]  # hash, password, salt, iterations

    def __repr__(self) -> str:
        return f"SaltedPasswordWanted({self.hash_name}, {self.iterations} iterations)"


class TicketWanted(NamedTuple):
    """Resume with the ticket that `open_context` of the mechanism takes."""


class Work(NamedTuple):
    """Resume with the result of a function that blocks, such as a call to a KDC."""

    run: Callable[[], object]


Step: TypeAlias = Send | NextResponse | PasswordWanted | BearerWanted | SaltedPasswordWanted | TicketWanted | Work


class Message(NamedTuple):
    """A mechanism's next token; resume with the broker's answer to it, bytes."""

    token: bytes
    is_last: bool = False

    def __repr__(self) -> str:
        return f"Message({len(self.token)} bytes)"


MechanismStep: TypeAlias = Message | PasswordWanted | BearerWanted | SaltedPasswordWanted | TicketWanted | Work

Conversation: TypeAlias = Generator[MechanismStep, object, None]


class Mechanism(Protocol):
    """One run of a mechanism; a new object authenticates each time."""

    @property
    def name(self) -> str:
        """As in `sasl_mechanism`."""

    def converse(self) -> Conversation:
        """Yield the tokens; end when the broker has proved what it must prove."""

    def refusal(self, words: str) -> AuthenticationError:
        """Return the error of a refusal with the broker's `words`, which are safe to show."""
