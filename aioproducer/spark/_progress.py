"""How far a query is behind, from what Spark says of its progress."""

import json
from collections.abc import Mapping
from typing import Protocol

from aioproducer.spark._offsets import from_json


class SourceOffsets(Protocol):
    """One of `StreamingQueryProgress.sources`."""

    @property
    def endOffset(self) -> str:  # noqa: N802  # Spark's name
        """Offsets after the last batch, as JSON."""
        ...

    @property
    def latestOffset(self) -> str:  # noqa: N802  # Spark's name
        """Offsets that there were, as JSON."""
        ...


def offsets_behind_latest(source: SourceOffsets | Mapping[str, object]) -> dict[str, str]:
    """Return the metrics that Spark's own Kafka source has: how many offsets a query is behind, by partition.

    Spark takes metrics from sources of Java and Scala alone, so `source.metrics` is empty for this one; the offsets
    are in the progress, of both sources. Use it where an alert reads `source.metrics`:

        for source in query.lastProgress.sources:
            alert_above(float(offsets_behind_latest(source)["maxOffsetsBehindLatest"]))

    Args:
        source: one of `progress.sources` of a query or of a `StreamingQueryListener`, or of the progress as JSON.

    Returns:
        `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, as text; nothing before the
        first batch, and of sources that have no such offsets.
    """
    given = source if isinstance(source, Mapping) else {name: getattr(source, name) for name in _OFFSETS}
    end, latest = (_decoded(given.get(name)) for name in _OFFSETS)
    behind = [max(0, offset - end[place]) for place, offset in latest.items() if place in end]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


_OFFSETS = ("endOffset", "latestOffset")


def _decoded(given: object) -> dict[tuple[str, int], int]:
    """Return offsets; the progress as JSON has an object where its Python face has text."""
    try:
        return from_json(json.loads(given) if isinstance(given, str) else given)  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):  # none yet, or those of another source
        return {}
