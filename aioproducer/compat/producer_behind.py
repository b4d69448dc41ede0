"""The `Producer` behind an `AIOKafkaProducer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aioproducer.errors import BrokerError
from aioproducer.lifecycle import ProducerState
from aioproducer.producer import Producer
from aioproducer.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError


class ProducerBehind(Producer):
    """Warns in aiokafka's words when it is dropped unclosed; a start that failed is not its end."""

    _dropped_as = "Unclosed AIOKafkaProducer"

    def for_start(self, *, is_final: bool) -> Self:
        """Return what to start next: another one if a start has failed and this one is cleaned up, else this one.

        Args:
            is_final: it was stopped, and stays so.
        """
        if is_final or self._lifecycle.state is not ProducerState.CLOSED:
            return self
        other = type(self)(self._config)
        other._made_at = self._made_at  # noqa: SLF001  # its own kind
        return other

    @property
    def is_new(self) -> bool:
        """Whether no start was tried yet."""
        return self._lifecycle.state is ProducerState.NEW

    def partitions_with_leader(self, topic: str) -> list[int]:
        """Return the partitions of a known topic that have a leader, in order."""
        cluster = self._open_running().metadata.cluster
        every = range(cluster.partition_count(topic) or 0)
        return [number for number in every if cluster.leader_of(topic, number) is not None]

    def reason_not_sent(self, topic: str | None, partition: int | None) -> KafkaError | None:
        """Return why nothing can be sent to a partition at present: no leader, or no connection to the leader.

        Returns None if the leader is connected, and for a record that has no partition yet.
        """
        if self._running is None or topic is None or partition is None:
            return None
        leader = self._running.metadata.cluster.leader_of(topic, partition)
        if leader is None:
            return BrokerError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self._running.client.last_error(leader)
