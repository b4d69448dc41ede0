"""The log of the Python processes that Spark starts: there no application configures logging."""

import logging
import sys


def process_log() -> logging.Logger:
    """Return the logger "aioproducer.spark"; unless logging is configured, it writes to standard error.

    Spark shows the standard error of its processes as its own. To be called where a line is logged: an event log, such
    as that of a request to the cluster, silences the package in a process that has not configured logging.
    """
    log = logging.getLogger("aioproducer.spark")
    if not _is_configured(log):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    return log


def _is_configured(log: logging.Logger) -> bool:
    """Return whether a handler takes what is logged; not as `hasHandlers`, which counts those that drop it."""
    place: logging.Logger | None = log
    while place is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in place.handlers):
            return True
        place = place.parent if place.propagate else None
    return False
