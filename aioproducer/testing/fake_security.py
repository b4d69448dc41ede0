"""The security of an embedded cluster, for tests to read and change; the same names as `KafkaCluster` has."""

from __future__ import annotations

import abc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aioproducer.testing.certificates import Certificate
from aioproducer.testing.cluster_driver import ClusterDriver
from aioproducer.testing.cluster_security import ClusterSecurity, client_options, client_properties
from aioproducer.testing.fake_broker.broker import PLAINTEXT
from aioproducer.testing.fake_broker.security import SeenAuthentication

FoundT = TypeVar("FoundT")
ResultT = TypeVar("ResultT")


class SecuredFakeCluster(abc.ABC):
    """The part of `FakeCluster` and `ThreadedFakeCluster` that a cluster made with `security` has."""

    @abc.abstractmethod
    def _with_driver(self, act: Callable[[ClusterDriver], ResultT]) -> ResultT:
        """Call `act` on the event loop of the running cluster."""

    # What clients and tests look at

    @property
    def security(self) -> ClusterSecurity:
        """The settings that the cluster was made with.

        Raises:
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        return self._with_driver(lambda driver: _secured(driver.model.settings.security))

    @property
    def security_folder(self) -> Path:
        """The folder of `ca.pem` and `client.pem`, for clients, while the cluster runs.

        Raises:
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        return self._with_driver(lambda driver: _secured(driver.certificates).folder)

    @property
    def authentications(self) -> list[SeenAuthentication]:
        """The last 10,000 authentications, refused ones too, oldest first."""
        return self._with_driver(lambda driver: list(driver.model.authentications))

    @property
    def names_asked(self) -> list[str | None]:
        """The last 1,000 names that clients put into the first message of a TLS handshake (SNI), oldest first."""
        return self._with_driver(lambda driver: list(_secured(driver.certificates).names_asked))

    def secured_servers(self, listener: str) -> str:
        """`host:port` of every broker's listener of this name, with commas between.

        Raises:
            LookupError: there is no such listener.
            RuntimeError: the cluster is not running.
        """
        return self._with_driver(lambda driver: _addresses(driver, listener))

    def client_options(self, listener: str, mechanism: str = "", *, user: str = "") -> dict[str, object]:
        """Options of a `Producer` for one listener; those of OAUTHBEARER lack the token provider.

        Args:
            listener: PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL, SASL_MTLS or SIGNED.
            mechanism: the SASL mechanism, for the listeners that have one.
            user: one of the users the cluster started with; the first if not given.

        Raises:
            LookupError: there is no such listener.
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        security = self.security
        servers: dict[str, object] = {"bootstrap_servers": self.secured_servers(listener)}
        return servers | client_options(security, self.security_folder, listener, mechanism=mechanism, user=user)

    def client_properties(self, listener: str, mechanism: str = "", *, user: str = "") -> dict[str, str]:
        """`client_options` as a Java client's properties.

        Raises:
            LookupError: there is no such listener.
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        return client_properties(self.client_options(listener, mechanism, user=user))

    # Changes

    def change_password(self, user: str, password: str) -> None:
        """Change a user's password for every mechanism, or create the user; sessions that exist go on.

        Raises:
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        self._with_driver(lambda driver: _secured(driver.model.credentials).change_password(user, password))

    def delete_user(self, user: str) -> None:
        """Forget a user; sessions that exist go on.

        Raises:
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        self._with_driver(lambda driver: _secured(driver.model.credentials).delete_user(user))

    def end_sessions(self) -> None:
        """Let every session expire now: clients must authenticate again before anything else (KIP-368)."""
        self._with_driver(lambda driver: driver.do(driver.model.end_sessions))

    def change_certificate(self, certificate: Certificate | None = None, *, trusted: str | None = None) -> None:
        """Replace the brokers' certificate, whom they trust, or both; for new connections.

        Args:
            certificate: for all TLS listeners.
            trusted: certificates of authorities, as PEM.

        Raises:
            RuntimeError: the cluster is not running, or was made without `security`.
        """
        self._with_driver(lambda driver: _secured(driver.certificates).change(certificate, trusted))


def _secured(found: FoundT | None) -> FoundT:
    if found is None:
        raise RuntimeError("this cluster was made without `security`")
    return found


def _addresses(driver: ClusterDriver, listener: str) -> str:
    brokers = driver.model.brokers.values()
    if listener == PLAINTEXT:
        return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    if any(listener not in broker.endpoints for broker in brokers):
        raise LookupError(f"no listener {listener!r}")
    return ",".join("{}:{}".format(*broker.endpoints[listener]) for broker in brokers)
