"""Calls of one producer that wait, and the reasons, for `explain()`. The reasons are looked up only then."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioproducer.explanation import CallWhy, WaitingCall, WaitReason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._network.requests import OpenRequest
    from aioproducer._sender.flush_waiters import FlushWaiters
    from aioproducer._transactions.runner import TransactionRunner

_READY: Final = CallWhy(WaitReason.READY)


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that waits; `why` may change with what it waits for."""

    name: str
    why: Callable[[float], CallWhy]
    called_at: float  # monotonic seconds
    deadline: float | None  # None: without a limit, or that of `why`
    topic: str | None

    def explained(self, now: float) -> WaitingCall:
        why = self.why(now)
        age_s = now - self.called_at
        deadline = self.deadline if why.deadline is None else why.deadline
        return WaitingCall(
            self.name,
            self.topic,
            why.request,
            why.nodes,
            why.reason,
            why.detail,
            age_s,
            age_s if why.since is None else min(now - why.since, age_s),
            None if why.until is None else why.until - now,
            None if deadline is None else deadline - now,
        )


class WaitingCalls:
    """The calls that wait now, in the order in which they began."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        client: NetworkClient,
        metadata: MetadataRefresher,
        flushes: FlushWaiters,
        transactions: TransactionRunner | None,
    ) -> None:
        self._loop = loop
        self._client = client
        self._metadata = metadata
        self._flushes = flushes
        self._transactions = transactions
        self._open: dict[OpenCall, None] = {}

    @contextmanager
    def waiting(
        self, name: str, why: Callable[[float], CallWhy], *, deadline: float | None = None, topic: str | None = None
    ) -> Iterator[OpenCall]:
        """Count the block as a call that waits.

        Args:
            why: returns the reason of a moment: a method of this object below.
            deadline: monotonic seconds.
        """
        call = OpenCall(name, why, self._loop.time(), deadline, topic)
        self._open[call] = None
        try:
            yield call
        finally:
            del self._open[call]

    def explained(self, now: float, topic: str | None) -> tuple[WaitingCall, ...]:
        """Return the calls that wait; with a topic, only those that are about it."""
        return tuple(call.explained(now) for call in self._open if topic in {None, call.topic})

    # Reasons

    def records(self, _now: float) -> CallWhy:
        left = self._flushes.generations.unfinished
        return CallWhy(WaitReason.RECORDS, detail=unfinished_text(left)) if left else _READY

    def metadata(self, _now: float) -> CallWhy:
        opened = self._client.open_request("Metadata")
        if opened is not None:
            return self._of_request(opened, self._metadata.last_error)
        error = self._metadata.last_error
        return CallWhy(WaitReason.BACK_OFF, detail=_last(error), request="Metadata")

    def transaction(self, now: float) -> CallWhy:
        assert self._transactions is not None, "calls of transactions"
        wait = self._transactions.wait(now)
        if wait.is_for_records:
            return self.records(now)
        if wait.request:
            opened = self._client.open_request(wait.request)
            return _READY if opened is None else self._of_request(opened, wait.trouble)
        if wait.pause_until is not None:
            return CallWhy(WaitReason.BACK_OFF, until=wait.pause_until, detail=wait.trouble)
        return _READY if self._metadata.cluster.nodes else self.metadata(now)

    def other_transaction(self, _now: float) -> CallWhy:
        return CallWhy(WaitReason.OTHER_TRANSACTION)

    def parts(self, what: str) -> Callable[[float], CallWhy]:
        """Return a reason: `what` is loaded or closed."""
        return lambda _now: CallWhy(WaitReason.PARTS, detail=what)

    def close(self, now: float) -> CallWhy:
        is_over = self._transactions is None or self._transactions.wait(now).is_over
        why = self.records(now) if is_over else self.transaction(now)
        return why._replace(deadline=self._flushes.drain_by)  # another call of `close` may bring it forward

    def requests(self, *names: str) -> Callable[[float], CallWhy]:
        """Return a reason: requests of these APIs, one after another, with pauses after failures."""

        def why(_now: float) -> CallWhy:
            opened = self._client.open_request(*names)
            return CallWhy(WaitReason.BACK_OFF) if opened is None else self._of_request(opened, None)

        return why

    def _of_request(self, opened: OpenRequest, last: object) -> CallWhy:
        if opened.asked:
            since = min(opened.asked.values())
            return CallWhy(WaitReason.RESPONSE, since, None, _last(last), opened.api, tuple(opened.asked))
        since, node_id = opened.began_at, opened.node_id
        if node_id is None:
            text = _last(last) or "no broker is connected yet"
            return CallWhy(WaitReason.CONNECTING, since, None, text, opened.api)
        blocked = self._client.blocked(node_id)
        if blocked is None:
            return _READY
        return CallWhy(blocked.reason, since, blocked.until, blocked.detail, opened.api, (node_id,))


def _last(error: object) -> str:
    return f"the last attempt failed: {error}" if error else ""


def unfinished_text(count: int) -> str:
    """Say how many batches, and records in wait queues, have not ended."""
    return f"{count} batches or waiting records" if count != 1 else "1 batch or waiting record"
