"""The `Producer` behind an `AIOKafkaProducer`."""

from __future__ import annotations

from typing import Self

from aioproducer.lifecycle import ProducerState
from aioproducer.producer import Producer


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
