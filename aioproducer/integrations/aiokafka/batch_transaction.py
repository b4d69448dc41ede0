"""The send methods for a batch's code: those of its transaction, except that they do not raise once it has failed.

A transaction that can no longer be committed refuses every further record. Raised in the body of `async for`, that
error would end the loop for good. So records after the failure get a failed delivery, the end of the batch notices the
failure, and the same batch is tried again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer._native.delivery import BatchResult
from aioproducer._producer.record_fields import shows_fields
from aioproducer._sender.completion import call_on_delivery, error_of_refused
from aioproducer.errors import TransactionAbortableError
from aioproducer.records import check_callback

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable
    from typing import Unpack

    from aioproducer._logs import EventLog
    from aioproducer._native.delivery import Delivery, OnDelivery
    from aioproducer._producer.arguments import GroupArgument, OffsetsArgument
    from aioproducer._producer.bulk import BulkDelivery
    from aioproducer._producer.record_fields import ColumnFields, RecordFields
    from aioproducer._producer.transaction import Transaction
    from aioproducer.errors import KafkaError
    from aioproducer.records import RecordMetadata


class BatchTransaction:
    """The transaction of one batch; the loop commits the offsets.

    Args:
        transaction: open.
        log: of callbacks that raise.
    """

    def __init__(self, transaction: Transaction, log: EventLog) -> None:
        self.transaction = transaction
        """The transaction itself, for its other methods, which raise."""
        self._log = log

    @shows_fields
    async def enqueue(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> Delivery:
        """As `Producer.enqueue`; in a transaction that has failed, a delivery that fails."""
        try:
            return await self.transaction.enqueue(topic, value, **fields)
        except TransactionAbortableError as error:
            return self._failed(error, fields.get("on_delivery"))

    @shows_fields
    def send(self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]) -> Delivery:
        """As `Producer.send`; in a transaction that has failed, a delivery that fails when it is awaited."""
        try:
            return self.transaction.send(topic, value, **fields)
        except TransactionAbortableError as error:
            return self._failed(error, fields.get("on_delivery"))

    @shows_fields
    async def send_and_wait(
        self, topic: str, value: object = None, **fields: Unpack[RecordFields[object]]
    ) -> RecordMetadata:
        """As `Producer.send_and_wait`; raises what the record failed with."""
        return await self.send(topic, value, **fields)

    @shows_fields
    async def send_many(
        self, topic: str, values: Iterable[object] | AsyncIterable[object], **fields: Unpack[ColumnFields[object]]
    ) -> BulkDelivery:
        """As `Producer.send_many`; raises in a transaction that has failed, and `run` handles that error."""
        return await self.transaction.send_many(topic, values, **fields)

    async def send_offsets(self, offsets: OffsetsArgument, group: GroupArgument) -> None:
        """As `Transaction.send_offsets`, for offsets of another group; the loop sends those of the batch."""
        await self.transaction.send_offsets(offsets, group)

    def _failed(self, raised: KafkaError, on_delivery: OnDelivery | None) -> Delivery:
        check_callback(on_delivery)
        error = error_of_refused(raised)
        loop = asyncio.get_running_loop()
        result = BatchResult(loop, None)
        result.fail(error, 1)
        if on_delivery is not None:
            loop.call_soon(call_on_delivery, on_delivery, None, error.fresh(), self._log)
        return result.delivery(0, -1)
