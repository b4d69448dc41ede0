"""Whether a write is one of a running query, whose brokers come back if they are away: it has written before.

To the process that prepares a write of a `foreachBatch` function Spark tells nothing of the query. The tasks know it,
and the process that commits learns it from them: it leaves a mark in the folder that Spark gives to the processes of
this driver alone, and deletes with it.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from aioproducer.spark._options import SinkOptions


def mark_as_running(options: SinkOptions) -> None:
    """Note that a query has written with these options."""
    if (mark := _mark(options)) is not None:
        with suppress(OSError):  # then its next write fails as the first one would
            mark.touch()


def is_marked_as_running(options: SinkOptions) -> bool:
    """Return whether a query of this driver has written with such options before."""
    mark = _mark(options)
    return mark is not None and mark.exists()


def _mark(options: SinkOptions) -> Path | None:
    """Return the file for the sink, or else the topic, at these servers; None where Spark gives no folder."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    names = (options.kafka["bootstrap.servers"], options.sink_id or "", options.topic or "")
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return Path(folder, f"aioproducer-running-{digest[:32]}") if folder else None
