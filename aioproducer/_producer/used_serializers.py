"""The serializers of a producer and its topics: `configure`, `on_cluster` and `close` of those that have them.

Source: Serializer.configure, ClusterResourceListener and Serializer.close in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import CancelledError
from typing import TYPE_CHECKING

from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer._logs import EventLog
    from aioproducer.config import ProducerConfig


class UsedSerializers:
    """The serializers of one producer, each once, in the order of their first use.

    Args:
        config: has the producer's own; those of topics are added later.

    Raises:
        ConfigurationError: a `configure` failed.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._used: list[object] = []
        self._configured: set[tuple[int, bool]] = set()
        self._cluster_id: str | None = None
        self._log: EventLog | None = None
        self.use("key_serializer", config.key_serializer, is_key=True)
        self.use("value_serializer", config.value_serializer, is_key=False)

    def use(self, name: str, serializer: object, *, is_key: bool) -> None:
        """Configure a serializer that is used from now on; again only if the same object gets the other part.

        Raises:
            ConfigurationError: its `configure` failed.
        """
        if serializer is None or (id(serializer), is_key) in self._configured:
            return
        configure = _method(serializer, "configure")
        if configure is not None:
            try:
                configure(self._config, is_key)
            except Exception as error:
                text = f"{name} {type(serializer).__name__}.configure failed: {type(error).__name__}: {error}"
                raise ConfigurationError(text) from error
        self._configured.add((id(serializer), is_key))
        if not any(serializer is other for other in self._used):
            self._used.append(serializer)
            if self._cluster_id is not None:
                self._notify(serializer, self._cluster_id)

    def log_to(self, log: EventLog) -> None:
        """Log failures of `on_cluster` and `close`."""
        self._log = log

    def on_cluster(self, cluster_id: str | None) -> None:
        """Notify the serializers, if the id of the cluster is new."""
        if cluster_id is None or cluster_id == self._cluster_id:
            return
        self._cluster_id = cluster_id
        for serializer in self._used:
            self._notify(serializer, cluster_id)

    def _notify(self, serializer: object, cluster_id: str) -> None:
        on_cluster = _method(serializer, "on_cluster")
        if on_cluster is None:
            return
        try:
            on_cluster(cluster_id)
        except (Exception, CancelledError) as error:  # noqa: BLE001  # of the user's own code
            self._note_failure(serializer, "on_cluster", error)

    async def close(self, timeout_s: float) -> None:
        """Close the serializers; one that fails does not keep the others open.

        Args:
            timeout_s: limit for each `close` that returns an awaitable.
        """
        while self._used:
            serializer = self._used.pop(0)
            close = _method(serializer, "close")
            if close is None:
                continue
            try:
                closing = close()
                if inspect.isawaitable(closing):
                    await asyncio.wait_for(closing, timeout_s)
            except Exception as error:  # noqa: BLE001  # of the user's own code
                self._note_failure(serializer, "close", error)

    def _note_failure(self, serializer: object, method: str, error: BaseException) -> None:
        if self._log is not None:
            text = f"{type(error).__name__}: {error}"
            self._log.warning("serializer_failed", serializer=type(serializer).__name__, method=method, error=text)


def _method(serializer: object, name: str) -> Callable[[*tuple[object, ...]], Awaitable[None] | None] | None:
    """Return a method of an object with `serialize`; functions have none."""
    found = getattr(serializer, name, None) if hasattr(serializer, "serialize") else None
    return found if callable(found) else None
