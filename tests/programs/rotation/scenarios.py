"""What changes under load, one function per scenario, and `SCENARIOS`, where the program finds them by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioproducer.security import ClientCredentials
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.server_properties import replace_file
from aioproducer.testing.tokens import unsecured_token
from tests.programs.rotation.stage import FIRST, LIFETIME_S, SECOND, Extent, Result, Stage, TokenEndpoint, moving_loop

USER: Final = "alice"
SESSION_MS: Final = 3_000
FILES: Final = ("ssl_truststore_location", "ssl_keystore_location")
BROKER: Final = {"num.partitions": "3"}


def cluster(version: str) -> KafkaCluster:
    """Return a node with every listener, and sessions that end all the time."""
    security = ClusterSecurity(users={USER: f"{USER}-secret"}, session_lifetime_ms=SESSION_MS)
    return KafkaCluster(version, security=security, properties=BROKER)


class Provider:
    """Gives unsecured tokens of a user, who may change."""

    user = USER

    async def token(self) -> str:
        return unsecured_token(self.user, lifetime_s=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    act: Callable[[Stage], Awaitable[None]]
    listener: str = "SASL_SSL"
    mechanism: str = "SCRAM-SHA-512"


def _copy(path: str, folder: Path) -> Path:
    copy = folder / Path(path).name
    copy.write_text(Path(path).read_text("utf-8"), "utf-8")
    return copy


async def play(name: str, kafka: KafkaCluster, folder: Path, *, extent: Extent) -> Result:
    scenario = SCENARIOS[name]
    options = kafka.client_options(scenario.listener, scenario.mechanism)
    del options["bootstrap_servers"]
    if scenario.mechanism == "OAUTHBEARER":
        options["sasl_token_provider"] = Provider()
    options |= {option: _copy(str(options[option]), folder) for option in FILES if option in options}
    result = Result(scenario=name, kafka=kafka.version)
    stage = Stage(kafka, scenario.listener, options, extent=extent)
    with TokenEndpoint(USER) as endpoint:
        stage.endpoint = endpoint
        if scenario.act is token_endpoint_down:
            client = ClientCredentials(endpoint.url, client_id=USER, client_secret=f"{USER}-secret")
            options |= {"sasl_token_provider": client}
        elif scenario.act in {password_at_the_broker_first, password_at_the_client_first}:
            options["sasl_password"] = lambda: stage.password
        await stage.run(scenario.act, result)
        if scenario.act is token_endpoint_down and not endpoint.failures:
            result.error = result.error or "the endpoint was never asked while it was down"
    return result


# Sessions


async def sessions_end(stage: Stage) -> None:
    """Sessions are renewed, as often as wanted, all connections together."""
    while stage.reauthentications < stage.extent.reauthentications:  # noqa: ASYNC110  # counters have no events
        await asyncio.sleep(0.1)


async def password_at_the_broker_first(stage: Stage) -> None:
    """The password changes at the broker, and the client learns it later."""
    await _change_passwords(stage, broker_first=True)


async def password_at_the_client_first(stage: Stage) -> None:
    """The client has a new password before the broker."""
    await _change_passwords(stage, broker_first=False)


async def _change_passwords(stage: Stage, *, broker_first: bool) -> None:
    original = stage.password
    for password in (*(f"{original}-{number}" for number in range(1, max(stage.extent.times, 2))), original):
        if broker_first:
            await stage.kafka.change_password(USER, password)
            await asyncio.sleep(stage.extent.gap_s)
        stage.password = password
        if not broker_first:
            await asyncio.sleep(stage.extent.gap_s)
            await stage.kafka.change_password(USER, password)
        await asyncio.sleep(stage.extent.gap_s)


async def token_endpoint_down(stage: Stage) -> None:
    """The token endpoint is down for half of each token's life."""
    assert stage.endpoint is not None
    stage.endpoint.begin()
    await asyncio.sleep(stage.extent.times * LIFETIME_S)


async def principal_changes(stage: Stage) -> None:
    """The tokens are those of another user."""
    provider = stage.options["sasl_token_provider"]
    assert isinstance(provider, Provider)
    for user in ("alice-1", "alice-2", USER):
        provider.user = user
        stage.way.reset_all()  # the others still have a token of the first
        await asyncio.sleep(2 * stage.extent.gap_s)


# Certificates


async def client_certificate(stage: Stage) -> None:
    """The client's certificate is replaced."""
    assert stage.kafka.security is not None
    for number in range(stage.extent.times):
        certificate = stage.kafka.security.authority.issue(common_name=f"client-{number}", usage=("client",))
        replace_file(_file(stage, "ssl_keystore_location"), certificate.pem)
        await _reconnect(stage)


async def broker_certificate(stage: Stage) -> None:
    """The broker's certificate is replaced by another of the same authority."""
    assert stage.kafka.security is not None
    for _ in range(stage.extent.times):
        await stage.kafka.change_certificate(stage.kafka.security.authority.issue())
        await _reconnect(stage)


async def authority(stage: Stage) -> None:
    """The authority is replaced: both are trusted, then the broker's certificate is the new one's, then it is alone."""
    assert stage.kafka.security is not None
    old, new = stage.kafka.security.authority, CertificateAuthority("another test CA")
    both = old.certificate + new.certificate
    trusted = _file(stage, "ssl_truststore_location")
    for before, after in ((old, new), (new, old))[: stage.extent.times]:
        await stage.kafka.change_certificate(trusted=both)
        replace_file(trusted, both)
        await _reconnect(stage)
        await stage.kafka.change_certificate(after.issue())
        await _reconnect(stage)
        replace_file(trusted, after.certificate)
        await _reconnect(stage)
        assert before is not after


def _file(stage: Stage, option: str) -> Path:
    path = stage.options[option]
    assert isinstance(path, Path)
    return path


async def _reconnect(stage: Stage) -> None:
    stage.way.reset_all()
    await asyncio.sleep(stage.extent.gap_s)


# Networks


async def proxy_killed(stage: Stage) -> None:
    """What stands before the broker is killed, and started again a second later."""
    for _ in range(stage.extent.times):
        await stage.way.cut()
        await asyncio.sleep(1)
        await stage.way.open()
        await asyncio.sleep(stage.extent.gap_s)


async def addresses_change(stage: Stage) -> None:
    """The broker's name leads to another address, and the former one is dead."""
    for address in (SECOND, FIRST, SECOND):
        left = stage.way
        moving_loop().address = address
        await stage.ways[address].open()
        await left.cut()
        await asyncio.sleep(stage.extent.gap_s)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "sessions, PLAIN": Scenario(act=sessions_end, mechanism="PLAIN"),
    "sessions, SCRAM": Scenario(act=sessions_end),
    "sessions, OAUTHBEARER": Scenario(act=sessions_end, mechanism="OAUTHBEARER"),
    "password, broker first": Scenario(act=password_at_the_broker_first),
    "password, client first": Scenario(act=password_at_the_client_first),
    "token endpoint down": Scenario(act=token_endpoint_down, mechanism="OAUTHBEARER"),
    "principal changes": Scenario(act=principal_changes, mechanism="OAUTHBEARER"),
    "client certificate": Scenario(act=client_certificate, listener="SASL_MTLS"),
    "broker certificate": Scenario(act=broker_certificate),
    "authority": Scenario(act=authority),
    "proxy killed": Scenario(act=proxy_killed),
    "addresses change": Scenario(act=addresses_change),
}
