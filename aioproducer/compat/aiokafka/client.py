"""The `Producer` under an `AIOKafkaProducer`, and the part of `producer.client` that tracing libraries read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from aioproducer._producer.producer import Producer
from aioproducer._producer.producer_state import ProducerState
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import BrokerError

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.errors import KafkaError


class ClientView:
    """Addresses and client id under the names of `aiokafka.AIOKafkaClient`; any other attribute raises.

    Args:
        config: the producer's configuration.
    """

    __slots__ = ("_bootstrap_servers", "_client_id")

    def __init__(self, config: ProducerConfig) -> None:
        self._bootstrap_servers = list(config.bootstrap_servers)
        self._client_id = config.client_id

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse any other attribute.

        Raises:
            AttributeError: always; names the alternative.
        """
        raise AttributeError(
            f"no {name!r}: there is no AIOKafkaClient behind this producer; "
            "`await producer.partitions_for(topic)` asks the cluster"
        )


class UnderlyingProducer(Producer):
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
        """Return why nothing can be sent to a partition now: no leader, or no connection to the leader.

        Returns None if the leader is connected, and for a record that has no partition yet.
        """
        if self._running is None or topic is None or partition is None:
            return None
        leader = self._running.metadata.cluster.leader_of(topic, partition)
        if leader is None:
            return BrokerError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        node = self._running.client.nodes.get(leader)
        return None if node is None else node.trouble
