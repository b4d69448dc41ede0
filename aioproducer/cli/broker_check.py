"""The steps of connecting to one broker, by the code that producers use, and remedies for those that fail."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from aioproducer._admin.cluster_requests import LoopTimers
from aioproducer._logs import event_log
from aioproducer._network.addresses import SocketAddress, connect, interleaved, look_up, place_text, text_of
from aioproducer._network.connection import BrokerConnection, whole_request
from aioproducer._network.context import ConnectionSecurity, NetworkContext, NetworkEvents
from aioproducer._network.node_connection import ConnectionAttempt
from aioproducer._network.proxy import connect_through
from aioproducer._network.requests import Answered, Lost, RequestEnd
from aioproducer._network.routes import Route
from aioproducer._network.sasl_connection import SaslConnection
from aioproducer._producer.component_settings import network_settings
from aioproducer._producer.connection_security import security_of
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    METADATA,
    PRODUCE,
    Api,
    decode_metadata_response,
    encode_metadata_request,
)
from aioproducer._protocol.sasl_exchange import (
    SASL_HANDSHAKE,
    SaslHandshakeResponse,
    decode_sasl_handshake_response,
    encode_sasl_handshake_request,
)
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig
from aioproducer.errors import BrokerConnectionError, KafkaError, TlsError

if TYPE_CHECKING:
    from aioproducer._network.proxy import Proxy


CLIENT_ID: Final = "aioproducer-diagnose"
_NO_MECHANISM: Final = "aioproducer-diagnose"  # none that a broker has: its answer lists those that it has

FEW_DAYS: Final = 30
_DAY_S: Final = 86_400

ResultT = TypeVar("ResultT")


class Step(NamedTuple):
    """One step and how it went.

    Attributes:
        broker: that it is about.
        remedy: what to do; also of a step that went well, and may not tomorrow.
    """

    broker: str
    name: str
    is_ok: bool
    text: str
    took_s: float
    remedy: str = ""


class _Finding(NamedTuple):
    text: str
    remedy: str = ""


class _FailedStepError(Exception):
    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy


class BrokerCheck:
    """The steps of one broker; the negative id of a node marks a bootstrap server, `timeout_s` is for each step."""

    def __init__(self, config: ProducerConfig, node: Node, timeout_s: float) -> None:
        self.brokers: Sequence[Node] = ()
        """Brokers that this one names, after the last step."""
        place = place_text(node.host, node.port)
        self.title: str = place if node.id < 0 else f"broker {node.id} at {place}"
        self._config = config
        self._node = node
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._settings = network_settings(config)._replace(request_timeout_ms=int(timeout_s * 1000))
        self._security = security_of(config, self._loop)
        self._route = Route(node.host, node.port)
        self._addresses: list[SocketAddress] = []
        self._connection: BrokerConnection | None = None

    async def steps(self) -> AsyncIterator[Step]:
        """Yield each step when it is over; none follows one that fails."""
        steps: list[tuple[str, Callable[[], Awaitable[_Finding | None]]]] = [
            ("route", self._look_at_route),
            ("name", self._resolve),
            ("tcp", self._connect),
            ("proxy", self._go_through_proxy),
            ("tls", self._shake_hands),
            ("versions", self._agree_on_versions),
            ("mechanisms", self._ask_for_mechanisms),
            ("ticket", self._get_ticket),
            ("login", self._log_in),
            ("metadata", self._ask_for_brokers),
        ]
        try:
            for name, do in steps:
                began = time.perf_counter()
                try:
                    finding = await do()
                except (_FailedStepError, KafkaError) as failed:
                    took_s = time.perf_counter() - began
                    remedy = getattr(failed, "remedy", "")
                    yield Step(self.title, name, False, printable(str(failed), None), took_s, remedy)
                    return
                if finding is not None:
                    took_s = time.perf_counter() - began
                    yield Step(self.title, name, True, printable(finding.text, None), took_s, finding.remedy)
        finally:
            await self._disconnect()

    # Up to an open port

    async def _look_at_route(self) -> _Finding | None:
        self._route = self._settings.routes.to(self._node)
        place = place_text(self._route.host, self._route.port)
        return _Finding(f"mapped to {place}") if place != place_text(self._node.host, self._node.port) else None

    async def _resolve(self) -> _Finding | None:
        proxy = self._route.proxy
        host, port = (self._route.host, self._route.port) if proxy is None else (proxy.host, proxy.port)
        try:
            async with asyncio.timeout(self._timeout_s):
                self._addresses = interleaved(await look_up(self._loop, host, port))
        except (OSError, UnicodeError) as error:
            why = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else text_of(error)
            raise _FailedStepError(f"{host} cannot be resolved: {why}", remedy_of_lookup(self._node, proxy)) from error
        if not self._addresses:
            raise _FailedStepError(f"{host} has no address", remedy_of_lookup(self._node, proxy))
        if _is_address(host):
            return None
        of_proxy = "" if proxy is None else f"the proxy {host}: "
        return _Finding(of_proxy + ", ".join(address[0] for address in self._addresses))

    async def _connect(self) -> _Finding:
        """Connect to every address: one that is dead costs each new connection a quarter of a second."""
        results = await asyncio.gather(*(self._connect_to(address) for address in self._addresses))
        texts = [
            f"{address[0]}: {'connected' if error is None else text_of(error)}"
            for address, error in zip(self._addresses, results, strict=True)
        ]
        errors = [error for error in results if error is not None]
        remedy = remedy_of_connect(self._node, self._route, errors) if errors else ""
        if len(errors) == len(results):
            raise _FailedStepError("; ".join(texts), remedy)
        return _Finding("; ".join(texts), remedy)

    async def _connect_to(self, address: SocketAddress) -> Exception | None:
        made: list[_Silent] = []

        def make() -> _Silent:
            made.append(_Silent())
            return made[-1]

        try:
            async with asyncio.timeout(self._timeout_s):
                await connect(self._loop, make, address)
        except TimeoutError:
            return TimeoutError(f"no answer within {self._timeout_s:g} s")
        except OSError as error:
            return error
        finally:
            for each in made:
                each.close()
        return None

    async def _go_through_proxy(self) -> _Finding | None:
        proxy, host, port = self._route.proxy, self._route.host, self._route.port
        if proxy is None:
            return None
        silent, missing = _Silent(), [f"{proxy} has not answered"]
        try:
            async with asyncio.timeout(self._timeout_s):
                if not proxy.resolves_names:
                    host = (await look_up(self._loop, host, port))[0][0]
                await connect_through(self._loop, proxy, lambda: silent, host=host, port=port, note=missing.append)
        except TimeoutError:
            raise _FailedStepError(f"{missing[-1]} (within {self._timeout_s:g} s)", "look at proxy_url") from None
        except (OSError, KafkaError) as error:
            raise _FailedStepError(
                f"{proxy}: {text_of(error)}", "look at proxy_url, and at the proxy's rules"
            ) from error
        finally:
            silent.close()
        return _Finding(f"{proxy} connects to {place_text(host, port)}")

    # From there to the brokers of the cluster

    async def _shake_hands(self) -> _Finding | None:
        """Open a connection without SASL, for this step and the next two."""
        if self._security is None or self._security.tls is None:
            return None
        try:
            self._connection = await self._opened(without_sasl=True)
        except TlsError:
            raise
        except KafkaError:
            return None  # said by the next step, which tries again
        tls = self._connection.extra_info("ssl_object")
        if not isinstance(tls, ssl.SSLObject):
            return None
        cipher = tls.cipher()
        certificate = certificate_of(tls) or PresentedCertificate("", "", (), None)
        text = f"{tls.version()}, {cipher[0] if cipher else 'unknown cipher'}; {certificate}"
        days = certificate.days_left
        soon = days is not None and days < FEW_DAYS
        return _Finding(text, f"the broker's certificate ends in {days} days: replace it" if soon else "")

    async def _agree_on_versions(self) -> _Finding:
        if self._connection is None:
            self._connection = await self._opened(without_sasl=True)
        versions = self._connection.versions
        level = versions.features.transaction_version
        return _Finding(f"Produce up to {versions.highest_common(PRODUCE)}, transaction.version {level}")

    async def _ask_for_mechanisms(self) -> _Finding | None:
        sasl = None if self._security is None else self._security.sasl
        if sasl is None:
            return None
        offered = await self._mechanisms(sasl.mechanism)
        await self._disconnect()
        listed = ", ".join(offered.mechanisms) or "none"
        if offered.error_code == ErrorCode.NONE:
            return _Finding(f"{listed}; configured is {sasl.mechanism}")
        if offered.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            remedy = f"set sasl_mechanism to one of them, or let {sasl.mechanism} be enabled on this listener"
            raise _FailedStepError(f"the listener has {listed}, and not {sasl.mechanism}", remedy)
        without = self._config.security_protocol.replace("SASL_", "")
        raise _FailedStepError("the listener has no SASL", f"set security_protocol={without}, or use another port")

    async def _get_ticket(self) -> _Finding | None:
        tickets = None if self._security is None or self._security.sasl is None else self._security.sasl.tickets
        if tickets is None:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                ticket = await tickets.ticket()
        except TimeoutError:
            text = f"no KDC has given a ticket within {self._timeout_s:g} s"
            raise _FailedStepError(text, "look at the realm's kdc in krb5.conf, and at firewalls (port 88)") from None
        return _Finding(f"{ticket}, for {tickets.source.service(self._node.host)}")

    async def _log_in(self) -> _Finding | None:
        sasl = None if self._security is None else self._security.sasl
        if sasl is None:
            return None
        self._connection = await self._opened()
        return _Finding(" as ".join(filter(None, (sasl.mechanism, sasl.user))))

    async def _ask_for_brokers(self) -> _Finding:
        connection = self._connection
        assert connection is not None
        version = connection.versions.highest_common(METADATA)
        body = encode_metadata_request(version, [], allow_auto_topic_creation=False)
        try:
            answer = await self._answer(
                connection,
                METADATA,
                version,
                body,
                lambda payload: decode_metadata_response(version, payload, from_node=-1),
            )
        except KafkaError as error:
            raise _FailedStepError(str(error), await self._remedy_of_close()) from error
        self.brokers = [node for node in answer.nodes if node.is_valid]
        listed = ", ".join(f"{node.id} at {place_text(node.host, node.port)}" for node in self.brokers)
        if not self.brokers:
            raise _FailedStepError("the broker names no broker to connect to", "look at advertised.listeners")
        return _Finding(f"cluster {answer.cluster_id}, brokers {listed}")

    async def _remedy_of_close(self) -> str:
        """Return what to do about a connection that is closed at the first request: is it a listener with SASL?"""
        if self._security is not None and self._security.sasl is not None:
            return "look at the log of the broker: it has closed the connection after the login"
        try:
            self._connection = await self._opened(without_sasl=True)
            offered = await self._mechanisms(_NO_MECHANISM)
        except KafkaError:
            return ""
        if offered.error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return ""
        protocol = "SASL_PLAINTEXT" if self._config.security_protocol == "PLAINTEXT" else "SASL_SSL"
        listed = ", ".join(offered.mechanisms)
        return f"the listener wants SASL: set security_protocol={protocol}, and sasl_mechanism to one of {listed}"

    # Connections and requests

    async def _opened(self, *, without_sasl: bool = False) -> BrokerConnection:
        await self._disconnect()
        security = self._security
        if security is not None and without_sasl:
            security = replace(security, sasl=None)
        context = self._context(security)
        label = self.title if self._node.id >= 0 else f"bootstrap broker {self.title}"
        attempt = ConnectionAttempt(context, self._node, label=label, timeout_s=self._timeout_s, number=0)
        route = await attempt.route()
        make: Callable[[], BrokerConnection] = partial(BrokerConnection, context, label, _ignore)
        if security is not None and security.sasl is not None:
            place = (attempt.host, self._node.port)
            make = partial(SaslConnection, context, label, _ignore, place=place, sasl=security.sasl)
        return await attempt.open(route, make)

    def _context(self, security: ConnectionSecurity | None) -> NetworkContext:
        return NetworkContext(
            loop=self._loop,
            timers=LoopTimers(),
            random=Random(),  # noqa: S311  # jitter
            events=NetworkEvents(),
            log=event_log(CLIENT_ID),
            client_id=CLIENT_ID,
            settings=self._settings,
            security=security,
        )

    async def _mechanisms(self, mechanism: str) -> SaslHandshakeResponse:
        assert self._connection is not None
        body = encode_sasl_handshake_request(mechanism)
        return await self._answer(self._connection, SASL_HANDSHAKE, 1, body, decode_sasl_handshake_response)

    async def _answer(
        self,
        connection: BrokerConnection,
        api: Api,
        version: int,
        body: bytes,
        decode: Callable[[memoryview], ResultT],
    ) -> ResultT:
        answer: asyncio.Future[ResultT] = self._loop.create_future()

        def on_end(end: RequestEnd) -> None:
            if isinstance(end, Answered):
                answer.set_result(decode(end.payload))
            elif not answer.done():
                answer.set_exception(cast("Lost", end).error.fresh())

        connection.send(whole_request(api, version, body=body, on_end=on_end))
        return await answer

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(BrokerConnectionError("diagnosed"))
            await asyncio.wait((connection.closed,))


class _Silent(asyncio.Protocol):
    """Says nothing."""

    _transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _ignore(_connection: BrokerConnection, _error: KafkaError) -> None:
    """Follow no connection's end: the step that uses it does."""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


# Remedies


LOOK: Final = "look at the spelling and at this machine's name servers; within containers, names are other ones"
ADVERTISED: Final = (
    "the cluster advertises this address: let the broker's advertised.listeners be one that is reached from here, "
    "or map it with address_map"
)
THIS_MACHINE: Final = (
    "the cluster advertises this very machine: let the broker's advertised.listeners be a name under which clients "
    "reach it, or map it with address_map"
)
REFUSED: Final = "nothing listens there: is the broker up, and is this its port?"
SWALLOWED: Final = "packets vanish: look at firewalls and security groups on the way"


def remedy_of_lookup(node: Node, proxy: Proxy | None) -> str:
    if proxy is not None:
        return "look at the host of proxy_url"
    return LOOK if node.id < 0 else ADVERTISED


def remedy_of_connect(node: Node, route: Route, errors: Sequence[Exception]) -> str:
    """Return what to do about addresses that cannot be connected to."""
    if route.proxy is not None:
        return "look at host and port of proxy_url"
    is_mapped = route.host != node.host
    if node.id >= 0 and not is_mapped and _is_this_machine(node.host):
        return THIS_MACHINE
    is_refused = any(getattr(error, "errno", None) == errno.ECONNREFUSED for error in errors)
    why = REFUSED if is_refused else SWALLOWED
    if is_mapped:
        return f"{why} This is where address_map leads"
    return why if node.id < 0 else f"{why} {ADVERTISED[0].upper()}{ADVERTISED[1:]}"


def _is_this_machine(host: str) -> bool:
    if host.removesuffix(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """A broker's certificate."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    days_left: int | None

    def __str__(self) -> str:
        """Return one line."""
        if not self.subject and not self.names:
            return "its certificate is not checked"
        names = ", ".join(self.names)
        return f"certificate of {self.subject or 'no subject'}, signed by {self.issuer}, for {names or 'no name'}, " + (
            "without an end" if self.days_left is None else f"{self.days_left} days left"
        )


def certificate_of(tls: ssl.SSLObject) -> PresentedCertificate | None:
    """Return the certificate of the other end; None if it was not checked."""
    found = tls.getpeercert()
    if not found:
        return None
    ends = found.get("notAfter")
    left_s = None if not isinstance(ends, str) else ssl.cert_time_to_seconds(ends) - time.time()  # noqa: TID251
    names = cast("tuple[tuple[str, str], ...]", found.get("subjectAltName", ()))
    return PresentedCertificate(
        _common_name(found.get("subject")),
        _common_name(found.get("issuer")),
        tuple(name for _, name in names),
        None if left_s is None else int(left_s // _DAY_S),
    )


def _common_name(parts: object) -> str:
    pairs = [pair for part in parts for pair in part] if isinstance(parts, tuple) else []
    named = dict(pairs)
    return str(named.get("commonName") or named.get("organizationName") or "an unnamed CA")
