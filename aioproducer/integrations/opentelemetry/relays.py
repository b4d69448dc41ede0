"""Metrics of the relays of an outbox, read at each collection of a meter."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from aioproducer._version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from aioproducer.outbox import Relay

    _Relays: TypeAlias = tuple[tuple[weakref.ref[Relay], str], ...]

_OUTBOX: Final = "aioproducer.outbox.name"


class _Instrument(NamedTuple):
    name: str
    field: str  # of `RelayStatistics`
    unit: str
    text: str
    is_counter: bool = False


_INSTRUMENTS: Final = (
    _Instrument("rows.sent", "rows_sent", "{row}", "Rows that were committed in Kafka.", is_counter=True),
    _Instrument("batches.sent", "batches_sent", "{batch}", "Transactions that had rows.", is_counter=True),
    _Instrument("rows.parked", "rows_parked", "{row}", "Rows that the relay has parked.", is_counter=True),
    _Instrument("retries", "retries", "{attempt}", "Attempts that ended with an error.", is_counter=True),
    _Instrument("rows.waiting", "rows_waiting", "{row}", "Rows in the table."),
    _Instrument("oldest.age", "oldest_age_s", "s", "Age of the oldest row."),
    _Instrument("relay.working", "is_working", "1", "1 if the relay works, 0 if it stands by or cannot."),
)


def observe_relays(*relays: Relay, meter_provider: MeterProvider | None = None) -> None:
    """Show relays of an outbox as metrics `aioproducer.outbox.rows.sent` and so on; call it once in a process.

    The attribute `aioproducer.outbox.name` tells the outboxes apart: of several with one name, the later ones get
    `-2`, `-3` and so on behind it. Relays are not kept alive.

    Args:
        *relays: started or not.
        meter_provider: None is the global one.

    Raises:
        TypeError: not a relay, with its place; or there is none.
    """
    if not relays:
        raise TypeError("relays is empty: at least one Relay is needed")
    for number, relay in enumerate(relays):
        if isinstance(relay, type) or not (hasattr(relay, "statistics") and hasattr(relay, "label")):
            raise TypeError(f"relays[{number}] must be a Relay, not {type(relay).__name__}")
    meter = metrics.get_meter("aioproducer", VERSION, meter_provider)
    known = tuple(zip(map(weakref.ref, relays), _names(relays), strict=True))
    for each in _INSTRUMENTS:
        made = meter.create_observable_counter if each.is_counter else meter.create_observable_gauge
        made(f"aioproducer.outbox.{each.name}", [partial(_observed, known, each.field)], each.unit, each.text)


def _observed(relays: _Relays, field: str, _options: CallbackOptions) -> Iterable[Observation]:
    for known, name in relays:
        relay = known()
        value = None if relay is None else getattr(relay.statistics(), field)
        if relay is not None and value is not None:
            yield Observation(value if isinstance(value, float) else int(value), {_OUTBOX: name})


def _names(relays: Iterable[Relay]) -> list[str]:
    names: list[str] = []
    for relay in relays:
        others = (f"{relay.label}-{number}" for number in count(2))
        names.append(next(name for name in chain([relay.label], others) if name not in names))
    return names
