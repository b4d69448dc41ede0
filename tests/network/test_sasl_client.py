"""What all connections of a producer share for their authentication (threat T19)."""

import asyncio
import hashlib
import threading

from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._protocol.sasl_exchange import PasswordWanted, SaltedPasswordWanted
from aioproducer.security import Secret


class Computer:
    """Computes as PBKDF2 does, and counts."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, name: str, password: bytes, salt: bytes, iterations: int) -> bytes:  # noqa: PLR0917
        self.threads.append(threading.current_thread().name)
        return hashlib.pbkdf2_hmac(name, password, salt, iterations)


def client() -> SaslClient:
    settings = SaslSettings(mechanism="SCRAM-SHA-512", username="alice", password=Secret("canary-secret"))
    return SaslClient(settings, asyncio.get_running_loop())


async def test_hundred_connections_compute_a_salted_password_once() -> None:
    sasl, computer = client(), Computer()
    wish = SaltedPasswordWanted("sha512", "canary-secret", b"salt", 100_000, computer)
    assert sasl.at_once(wish) is None
    results = await asyncio.gather(*(sasl.carry_out(wish) for _ in range(100)))

    assert computer.threads == ["aioproducer-sasl"]
    assert set(results) == {hashlib.pbkdf2_hmac("sha512", b"canary-secret", b"salt", 100_000)}
    assert sasl.at_once(wish) == results[0]


async def test_few_iterations_are_computed_at_once() -> None:
    sasl, computer = client(), Computer()
    for _ in range(3):
        assert sasl.at_once(SaltedPasswordWanted("sha512", "canary-secret", b"salt", 4096, computer))

    assert computer.threads == [threading.current_thread().name]


async def test_computation_that_was_cancelled_is_done_again() -> None:
    """`asyncio.run` cancels every task at its end, and a producer may still connect then."""
    computer = Computer()
    sasl = client()
    wish = SaltedPasswordWanted("sha512", "canary-secret", b"salt", 100_000, computer)
    waiting = asyncio.create_task(sasl.carry_out(wish))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([waiting])

    assert await sasl.carry_out(wish) == hashlib.pbkdf2_hmac("sha512", b"canary-secret", b"salt", 100_000)


async def test_salted_passwords_of_many_salts_are_forgotten() -> None:
    sasl, computer = client(), Computer()
    for number in range(100):
        sasl.at_once(SaltedPasswordWanted("sha256", "canary-secret", b"salt%d" % number, 4096, computer))

    assert sasl.salted_passwords <= 16


async def test_another_password_has_another_salted_password() -> None:
    sasl, computer = client(), Computer()
    first, second = (
        sasl.at_once(SaltedPasswordWanted("sha256", password, b"salt", 4096, computer)) for password in ("old", "new")
    )

    assert first != second


async def test_secret_is_read_each_time() -> None:
    sasl = client()

    assert sasl.at_once(PasswordWanted()) == "canary-secret"


def test_repr_of_a_wish_shows_no_password() -> None:
    assert "canary" not in repr(SaltedPasswordWanted("sha256", "canary", b"canary", 4096, Computer()))
