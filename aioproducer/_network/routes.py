"""Ways of connections to brokers: through `address_map`, a proxy, or nowhere if the broker is not allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from aioproducer._network.addresses import parse_place, place_text
from aioproducer._protocol.cluster_text import printable
from aioproducer.errors import BrokerConnectionError

if TYPE_CHECKING:
    from aioproducer._network.proxy import Proxy
    from aioproducer.cluster import Node

AddressMap: TypeAlias = Mapping[str, str] | Callable[[str], str | None]
"""`"host:port"` as the cluster advertises it -> `"host:port"` to connect to; None from a function: unchanged."""


@dataclass(frozen=True, slots=True)
class BrokerPattern:
    """Brokers of one pattern: `kafka-*.internal`, `10.0.0.*:9092`, `[fd00::*]:9092`.

    Attributes:
        host: in lower case, with `*`, `?` and `[...]`.
        port: None for any.
        text: as it was given.
    """

    host: str
    port: int | None
    text: str

    def fits(self, host: str, port: int) -> bool:
        return self.port in {None, port} and fnmatchcase(host.lower().removesuffix("."), self.host)


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a broker.

    Attributes:
        host: that is resolved, here or by the proxy.
        note: what an error says about the way; empty without a map and a proxy.
    """

    host: str
    port: int
    proxy: Proxy | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Routes:
    """The options that lead connections to other places than brokers advertise."""

    address_map: AddressMap | None = None
    allowed_brokers: tuple[BrokerPattern, ...] = ()
    proxy: Proxy | Callable[[], Proxy] | None = None  # a function that returns the current proxy, for each connection
    uses_canonical_names: bool = False  # for bootstrap servers

    def to(self, node: Node) -> Route:
        """Return the way to a broker; nothing is resolved for one that is not allowed.

        Raises:
            BrokerConnectionError: it is not allowed, or `address_map` does not return an address.
            ConfigurationError: the proxy's URL cannot be read.
        """
        host, port = node.host, node.port
        if node.id >= 0 and not self._allows(host, port):
            patterns = ", ".join(pattern.text for pattern in self.allowed_brokers)
            raise BrokerConnectionError(
                f"broker {node.id} at {place_text(host, port)}, as the cluster advertises it, is none of "
                f"allowed_brokers: {patterns}"
            )
        mapped = self._mapped(host, port)
        notes = [] if mapped is None else [f"mapped to {place_text(*mapped)}"]
        proxy = self.proxy() if callable(self.proxy) else self.proxy
        if proxy is not None:
            notes.append(f"through the proxy {proxy}")
        return Route(*(mapped or (host, port)), proxy=proxy, note=f" ({', '.join(notes)})" if notes else "")

    def _allows(self, host: str, port: int) -> bool:
        return not self.allowed_brokers or any(pattern.fits(host, port) for pattern in self.allowed_brokers)

    def _mapped(self, host: str, port: int) -> tuple[str, int] | None:
        if self.address_map is None:
            return None
        advertised = place_text(host, port)
        if isinstance(self.address_map, Mapping):
            found = self.address_map.get(advertised)
        else:
            try:
                found = self.address_map(advertised)
            except Exception as error:
                text = f"address_map failed for {advertised}: {type(error).__name__}: {error}"
                raise BrokerConnectionError(text) from error
        if found is None:
            return None
        place = parse_place(found) if isinstance(found, str) else None
        if place is None:
            shown = printable(repr(found))
            raise BrokerConnectionError(f"address_map returned {shown} for {advertised}, which is not host:port")
        return place
