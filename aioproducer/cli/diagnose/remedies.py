"""Remedies for steps that fail, and the contents of a certificate."""

from __future__ import annotations

import errno
import ipaddress
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from aioproducer._network.proxy import Proxy
    from aioproducer._network.routes import Route
    from aioproducer.cluster import Node

FEW_DAYS: Final = 30
_DAY_S: Final = 86_400

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
