"""The options that hold for one batch: the producer's, or those that `Producer.topic` was given for its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioproducer._protocol.compression import CompressionType


class BatchOptions(NamedTuple):
    """Options of a batch, fixed when it is opened; shared by all batches with the same ones."""

    linger_s: float
    delivery_timeout_s: float
    codec: CompressionType
    level: int | None = None  # on Kafka's scale of the codec; None if it has none

    @property
    def closing_age_s(self) -> float:
        """Age at which the batch takes no more records, so that no record's deadline is far from the batch's."""
        return self.delivery_timeout_s / 10

    @property
    def ready_age_s(self) -> float:
        """Age at which the batch is ready to be sent."""
        return min(self.linger_s, self.closing_age_s)
