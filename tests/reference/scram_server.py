"""SCRAM's server as RFC 5802 describes it, with one user."""

import base64
import hashlib
import hmac

SALT = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramServer:
    """One authentication; `first` may be changed by a test that adds to the challenge."""

    def __init__(self, name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash = HASHES[name]
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), SALT, iterations)
        self.client_first = ""
        self.first = ""

    def challenge(self, client_first: bytes) -> bytes:
        self.client_first = client_first.decode().removeprefix("n,,")
        attributes = dict(part.split("=", 1) for part in self.client_first.split(","))
        nonce = f"{attributes['r']}{SERVER_NONCE}"
        self.first = f"r={nonce},s={base64.b64encode(SALT).decode()},i={self.iterations}"
        return self.first.encode()

    def verdict(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        signed = f"{self.client_first},{self.first},{without_proof}".encode()
        client_key = hmac.digest(self.salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, client_key).digest(), signed, self.hash)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        assert base64.b64decode(proof) == expected, "a wrong password"
        own = hmac.digest(hmac.digest(self.salted, b"Server Key", self.hash), signed, self.hash)
        return b"v=" + base64.b64encode(own)
