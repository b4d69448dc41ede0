"""TLS and SASL in the simulation, and their checker, which finds what breaks its invariants."""

import ssl
import struct
from random import Random

import pytest

from tests.programs.simulation.campaign import run_plan
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.secured import Secured, forged
from tests.programs.simulation.session_checker import SessionChecker
from tests.programs.simulation.simulated_loop import SimulatedLoop, threads_on
from tests.programs.simulation.simulated_tls import SLOWEST_CONNECTION_S, Certificates, TlsEnd
from tests.programs.simulation.simulated_transport import SimulatedTransport

HANDSHAKE, TOKEN, METADATA, PRODUCE = 17, 36, 3, 0
NODE = "10.0.0.1"


def plan_with(mechanism: str, *, tls: str = "") -> Plan:
    """Return the first plan with this mechanism and version of TLS."""
    for seed in range(1_000):
        plan = draw_plan("D15", seed)
        if (plan.mechanism, plan.tls) == (mechanism, tls) and plan.enabled:
            return plan
    raise LookupError(mechanism)


class Talk:
    """One connection as its checker sees it; time goes on by hand."""

    def __init__(self, **options: object) -> None:
        self.now = 1_000.0
        self.history = History(clock=lambda: self.now)
        plan = plan_with("PLAIN").with_options(**options)
        secured = Secured(plan, lambda: self.now, self.history.violated)
        self.checker = SessionChecker(plan, secured, self.history, was_served=lambda _: False)
        self.transport = SimulatedTransport(None, None, NodeOfOne(), 1)  # type: ignore[arg-type]  # what the checker reads
        self._sent = 0

    def send(self, api: int, content: bytes = b"") -> int:
        self._sent += 1
        frame = struct.pack(">ihhi", 8 + len(content), api, 1, self._sent) + content
        self.checker.written(self.transport, frame)
        self.transport.asked[self._sent] = api
        return self._sent

    def answer(self, number: int, content: bytes) -> None:
        self.checker.answered(self.transport, struct.pack(">ii", 4 + len(content), number) + content)
        del self.transport.asked[number]

    def authenticate(self, lifetime_ms: int = 10_000, *, behind: int | None = None) -> None:
        hello = self.send(HANDSHAKE)
        token = self.send(TOKEN, b"\0alice\0alice-secret")
        if behind is not None:
            self.send(behind)
        self.answer(hello, struct.pack(">hi", 0, 0))
        self.answer(token, struct.pack(">hhiq", 0, -1, 0, lifetime_ms))

    @property
    def found(self) -> list[str]:
        return [violation.invariant for violation in self.history.violations]


class NodeOfOne:
    number = 1


def test_session_that_is_renewed_in_time_is_accepted() -> None:
    talk = Talk()
    talk.authenticate()
    talk.send(METADATA)
    talk.now += 9
    talk.authenticate(behind=METADATA)
    talk.now += 8
    talk.send(METADATA)

    assert talk.found == []


def test_request_before_the_first_authentication_is_found() -> None:
    talk = Talk()
    talk.send(METADATA)

    assert talk.found == ["SESSION"]


def test_request_behind_the_end_of_a_session_is_found() -> None:
    talk = Talk()
    talk.authenticate()
    talk.now += 10.1
    talk.send(METADATA)

    assert talk.found == ["SESSION"]


@pytest.mark.parametrize("after_s", [0.5, 8.0])
def test_session_that_is_renewed_too_early_is_found(after_s: float) -> None:
    talk = Talk()
    talk.authenticate(1_000 if after_s < 1 else 10_000)
    talk.now += after_s
    talk.authenticate()

    assert talk.found[0] == "SESSION"


def test_request_without_a_response_behind_a_token_is_found() -> None:
    talk = Talk(acks=0)
    talk.authenticate()
    talk.now += 9
    talk.authenticate(behind=PRODUCE)

    assert talk.found == ["SESSION"]


def test_request_between_a_handshake_and_its_token_is_found() -> None:
    talk = Talk()
    talk.authenticate()
    talk.now += 9
    talk.send(HANDSHAKE)
    talk.send(METADATA)

    assert talk.found == ["SESSION"]


def test_request_after_a_forged_answer_is_found() -> None:
    talk = Talk()
    talk.authenticate()
    talk.checker.forged(talk.transport)
    talk.send(METADATA)

    assert talk.found == ["PROOF"]


def test_password_of_long_ago_is_found() -> None:
    talk = Talk()
    talk.checker._secured.passwords.give("another")  # noqa: SLF001  # what the client was told
    talk.now += 60
    talk.authenticate()

    assert talk.found == ["SECRET"]


def test_storm_of_refused_authentications_is_found() -> None:
    talk = Talk()
    for number in range(11):
        talk.transport.number = number
        talk.send(HANDSHAKE)
        token = talk.send(TOKEN, b"\0alice\0alice-secret")
        talk.answer(token, struct.pack(">hhiq", 58, -1, 0, 0))

    assert talk.found == ["STORM"]


@pytest.mark.parametrize(
    "kind, before, after",
    [
        ("signature", b"..v=" + b"A" * 43 + b"=", b"..v=B" + b"A" * 42 + b"="),
        ("no signature", b"..v=" + b"A" * 43 + b"=", b"..x=" + b"A" * 43 + b"="),
        ("nonce", b"r=" + b"x" * 30 + b",s=salt,i=4096", b"r=A" + b"x" * 29 + b",s=salt,i=4096"),
        ("iterations", b"r=" + b"x" * 30 + b",s=salt,i=4096", b"r=" + b"x" * 30 + b",s=salt,i=0001"),
        ("signature", b"r=" + b"x" * 30 + b",s=salt,i=4096", b"r=" + b"x" * 30 + b",s=salt,i=4096"),
    ],
)
def test_answer_is_forged_in_place(kind: str, before: bytes, after: bytes) -> None:
    assert forged(before, kind) == after


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_end_of_tls_lets_plaintext_leave_with_its_record(version: str) -> None:
    certificates = Certificates(plan_with("PLAIN", tls=version), lambda: 0.0)
    end = TlsEnd(certificates.context(NODE), impostor="", trouble="", rng=Random(1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=NODE)
    for _ in range(3):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            sent = outgoing.read()
            assert list(end.take(sent)) == []
            incoming.write(b"".join(record.answer for record in end.left(len(sent))))
    client.write(struct.pack(">i", 5) + b"frame")
    sealed = outgoing.read()

    assert list(end.take(sealed)) == [struct.pack(">i", 5) + b"frame"]
    assert not any(record.plain for record in end.left(len(sealed) - 1))
    assert end.left(1)[0].plain == struct.pack(">i", 5) + b"frame"
    with pytest.raises(ValueError, match="plain"):
        list(end.take(b"plaintext"))


def test_certificate_of_long_ago_is_not_the_clients() -> None:
    now = 0.0
    certificates = Certificates(plan_with("PLAIN", tls="TLSv1.3"), lambda: now)
    now = 100.0
    certificates.give_client(1)

    assert certificates.may_be_client(0, 100.0 + SLOWEST_CONNECTION_S / 2)
    assert not certificates.may_be_client(0, 100.0 + SLOWEST_CONNECTION_S * 2)
    assert certificates.may_be_client(1, 100.0)


def test_threads_of_a_producer_are_events() -> None:
    loop = SimulatedLoop(Random(0))
    done: list[float] = []
    with threads_on(loop):
        loop.start_thread(lambda: done.append(loop.time()), "name")
        loop.call_later(1.0, loop.stop)
        loop.run_forever()
    loop.close()

    assert len(done) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_seed_with_tls_decides_everything(mechanism: str) -> None:
    """Keys and signatures are random, and nothing depends on them."""
    plan = plan_with(mechanism, tls="TLSv1.3")
    runs = [run_plan(plan) for _ in range(2)]

    assert len({(run.digest, run.turns) for run in runs}) == 1
    assert runs[0].violations == ()
