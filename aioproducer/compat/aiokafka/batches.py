"""`create_batch` and `send_batch` of an `AIOKafkaProducer`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from aiokafka.errors import MessageSizeTooLargeError

from aioproducer.compat.aiokafka.batch_builder import BatchBuilder
from aioproducer.compat.aiokafka.errors import set_error
from aioproducer.compat.aiokafka.options import as_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproducer.compat.aiokafka.batch_builder import AiokafkaSerializer
    from aioproducer.compat.aiokafka.client import UnderlyingProducer
    from aioproducer.compat.aiokafka.options import ChoosePartition
    from aioproducer.config import ProducerConfig
    from aioproducer.records import RecordMetadata


class BatchMethods:
    """Mixin with the batch methods. `AIOKafkaProducer` has the producer, its configuration, and the other methods."""

    _config: ProducerConfig
    _producer: UnderlyingProducer
    _key_serializer: AiokafkaSerializer | None
    _value_serializer: AiokafkaSerializer | None
    _partitioner: ChoosePartition

    if TYPE_CHECKING:

        async def partitions_for(self, topic: str) -> set[int]:
            """Return the partitions of a topic."""

        async def _enqueue(
            self,
            topic: str,
            value: object,
            *,
            key: object,
            partition: int | None,
            timestamp: float | None,
            headers: Sequence[tuple[str, bytes | None]] | None,
        ) -> asyncio.Future[RecordMetadata]: ...

        def _reject_commit(self, error: BaseException) -> None: ...

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch, to be filled and given to `send_batch`."""
        return BatchBuilder(
            self._config.batch_size, key_serializer=self._key_serializer, value_serializer=self._value_serializer
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        """Queue the records of a batch, in order, to one partition.

        If it is refused or cancelled halfway, its transaction cannot be committed with a part of the batch.

        Args:
            batch: of `create_batch`; it is closed.
            topic: the topic.
            partition: its number. With None the `partitioner` chooses, as for a record without a key: aiokafka's
                default picks any partition that has a leader.

        Returns:
            A future for the metadata of the first record; its result is None for an empty batch and with `acks=0`.

        Raises:
            AssertionError: there is no such partition.
            TypeError: not a batch of `create_batch`.
            MessageSizeTooLargeError: a record is larger than `max_request_size`; none of the batch is queued.
            aiokafka.errors.KafkaError: as `send`.
        """
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"batch must be one of `create_batch`, not {type(batch).__name__}")
        batch.close()
        number = await self._partition_of_batch(topic, partition)
        if (largest := batch.largest()) > self._config.max_request_size:  # found later, a part would have been sent
            limit = self._config.max_request_size
            raise MessageSizeTooLargeError(f"a record of the batch takes {largest} bytes, max_request_size={limit}")
        promised: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        futures: list[asyncio.Future[RecordMetadata]] = []
        try:
            for value, key, at, headers in batch.records:
                futures.append(
                    await self._enqueue(topic, value, key=key, partition=number, timestamp=at, headers=headers)
                )
        except BaseException as error:
            if futures or isinstance(error, asyncio.CancelledError):  # a cancelled call may have left its record
                self._reject_commit(error)
            let_go(futures)
            raise
        asyncio.gather(*futures).add_done_callback(partial(_tell_first, promised))
        return promised

    async def _partition_of_batch(self, topic: str, partition: int | None) -> int:
        every = sorted(await self.partitions_for(topic))
        if partition is None:
            partition = self._partitioner(None, every, self._producer.partitions_with_leader(topic))
        number = as_whole(partition)
        if number not in every:
            raise AssertionError(f"Unrecognized partition: partition must be 0..{len(every) - 1}, got {partition!r}")
        return number


def let_go(futures: Iterable[asyncio.Future[RecordMetadata]]) -> None:
    """Cancel futures that no caller gets, because the call raises; mark their exceptions as retrieved."""
    for future in futures:
        if not future.cancel():
            future.exception()


def _tell_first(promised: asyncio.Future[RecordMetadata], gathered: asyncio.Future[list[RecordMetadata]]) -> None:
    error = gathered.exception()
    if promised.done():  # cancelled
        return
    if error is not None:
        set_error(promised, error)
    else:
        found = gathered.result()
        promised.set_result(cast("RecordMetadata", found[0] if found else None))
