"""Users and their passwords, as one cluster knows them; SCRAM keeps what can check a password, not the password."""

import hashlib
import hmac
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.testing.cluster_security import ClusterSecurity

SCRAM_HASHES: Mapping[str, str] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
_SALT_BYTES = 20


class ScramVerifier(NamedTuple):
    """The keys that the broker keeps for one user and mechanism (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class Credentials:
    """The users of a cluster; a change applies to authentications that begin later."""

    def __init__(self, security: ClusterSecurity, random: Random) -> None:
        self._passwords = dict(security.users)
        self._iterations = security.scram_iterations
        self._random = random
        self._verifiers: dict[tuple[str, str], ScramVerifier] = {}

    def change_password(self, user: str, password: str) -> None:
        """Set a user's password for every mechanism; a new user is created."""
        self.delete_user(user)
        self._passwords[user] = password

    def delete_user(self, user: str) -> None:
        self._passwords.pop(user, None)
        for mechanism in SCRAM_HASHES:
            self._verifiers.pop((user, mechanism), None)

    def is_password(self, user: str, password: str) -> bool:
        return user in self._passwords and hmac.compare_digest(self._passwords[user].encode(), password.encode())

    def verifier(self, user: str, mechanism: str) -> ScramVerifier | None:
        """Return what SCRAM checks a user by; None for an unknown user."""
        password = self._passwords.get(user)
        if password is None:
            return None
        found = self._verifiers.get((user, mechanism))
        if found is None:
            found = self._verifiers[user, mechanism] = self._made(password, SCRAM_HASHES[mechanism])
        return found

    def _made(self, password: str, digest: str) -> ScramVerifier:
        salt = self._random.randbytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, self._iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return ScramVerifier(salt, self._iterations, stored_key, hmac.digest(salted, b"Server Key", digest))
