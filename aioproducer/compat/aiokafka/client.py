"""The part of `producer.client` that tracing libraries read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig


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
