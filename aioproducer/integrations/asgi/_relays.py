"""Relays of an outbox, shown beside producers. `aioproducer.outbox` is not imported: its extra may be missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from aioproducer.outbox import Relay


def is_relay(shown: object) -> TypeIs[Relay]:
    """Return whether an object is a relay: then its module is imported."""
    module = sys.modules.get("aioproducer.outbox")
    return module is not None and isinstance(shown, module.Relay)


def readiness_of(relay: Relay) -> dict[str, object]:
    """Return the row of `readiness`."""
    health, found = relay.health(), relay.statistics()
    return {
        "client_id": relay.label,
        "ready": health.is_ready,
        "reason": health.reason,
        "state": _state_of(relay),
        "rows_waiting": found.rows_waiting,
        "oldest_age_s": found.oldest_age_s,
        "rows_parked": found.rows_parked,
    }


def document_of_relay(relay: Relay) -> dict[str, object]:
    """Return what the page of `inspector` shows."""
    health = relay.health()
    return {
        "client_id": relay.label,
        "state": _state_of(relay),
        "note": health.reason,
        "summary": relay.explain(),
    }


def _state_of(relay: Relay) -> str:
    if not relay.health().is_ready:
        return "sends nothing"
    return "works" if relay.statistics().is_working else "stands by"
