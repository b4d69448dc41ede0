"""The options that hold for one batch: the producer's, or those that `Producer.topic` was given for its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer._protocol.compression import CompressionType


class BatchOptions:
    """Options of a batch, fixed when it is opened; shared by all batches with the same ones, and never changed.

    Args:
        level: on Kafka's scale of the codec; None if it has none.
    """

    __slots__ = ("closing_age_s", "codec", "delivery_timeout_s", "level", "ready_age_s")

    def __init__(
        self, *, linger_s: float, delivery_timeout_s: float, codec: CompressionType, level: int | None = None
    ) -> None:
        self.delivery_timeout_s = delivery_timeout_s
        self.codec = codec
        self.level = level
        # Ages of the batch; computed here, because they are asked for several times per batch.
        self.closing_age_s = delivery_timeout_s / 10
        """It takes no more records then, so that no record's deadline is far from the batch's."""
        self.ready_age_s = min(linger_s, self.closing_age_s)
        """It is ready to be sent then."""
