"""`AIOKafkaProducer` with aiokafka's signatures, over a `Producer`.

The two-step send stays: `await send(...)` is queued, awaiting the future it returns is delivered. Behind it is
`Producer.enqueue`, so what differs from aiokafka is what a `Producer` does better or elsewhere; the page
docs/how-to/migrate_from_aiokafka.md lists it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self, cast

from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import RecordMetadata as AiokafkaMetadata
from aiokafka.structs import TopicPartition

from aioproducer._producer.names_elsewhere import OF_AIOKAFKA, explains
from aioproducer._shown_values import in_any_state
from aioproducer.compat.aiokafka.batches import BatchBuilder, let_go, serialized, tell_first
from aioproducer.compat.aiokafka.client import ClientView, UnderlyingProducer
from aioproducer.compat.aiokafka.errors import TRANSLATED, as_aiokafka, set_error, undelivered
from aioproducer.compat.aiokafka.options import (
    ACKS_NOT_GIVEN,
    NEVER_IDLE_MS,
    SaslArguments,
    as_milliseconds,
    as_whole,
    buffer_for,
    life_of_a_record,
    own_partitioner,
    refuse_uncallable,
    refuse_unknown,
    security_options,
    warn_of_deprecated,
    with_default_port,
)
from aioproducer.compat.aiokafka.transactions import AIOKafkaTransactionMethods
from aioproducer.config import ProducerConfig
from aioproducer.config._option_types import IntOption
from aioproducer.errors import KafkaError, MetadataTimeoutError, ProducerClosedError, UndeliveredError
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from aioproducer.compat.aiokafka.batches import AiokafkaSerializer
    from aioproducer.compat.aiokafka.options import ChoosePartition
    from aioproducer.records import RecordMetadata


_DEFAULT_PARTITIONER: Final = cast("ChoosePartition", DefaultPartitioner())
_CLIENT_NUMBERS: Final = itertools.count(1)

_TURNS_UNTIL_TOLD: Final = 3
"""Turns of the event loop from the end of a batch's last record until the callbacks of the batch's future were called.

The callback of the record's future runs in the first, that of the `gather` in the second, and those in the third.
"""


@explains(OF_AIOKAFKA, other_block="__enter__")
class AIOKafkaProducer(AIOKafkaTransactionMethods):
    """Takes aiokafka's arguments, all of them; those that cannot be honoured yet are refused by the constructor.

    ```python
    from aioproducer.compat import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
        future = await producer.send("orders", b"...")  # queued
        metadata = await future  # delivered
    ```

    May be constructed anywhere; it belongs to the event loop that starts it.

    Args:
        loop: ignored, with aiokafka's warning.
        bootstrap_servers: as all arguments, see aiokafka.
        client_id: None is a number.
        metadata_max_age_ms: of the cluster's metadata.
        request_timeout_ms: of one request; a record lives twice as long (`delivery_timeout_ms`).
        api_version: ignored, with aiokafka's warning.
        acks: 1 unless `enable_idempotence`.
        key_serializer: a function of the key, called for None too.
        value_serializer: a function of the value, called for None too.
        compression_type: None is none.
        max_batch_size: becomes `batch_size`.
        partitioner: called with (serialized key, all partitions, those with a leader).
        max_request_size: bytes of a request, and so of a record.
        linger_ms: how long an incomplete batch waits.
        retry_backoff_ms: between attempts, always the same.
        security_protocol: as aiokafka's.
        ssl_context: for "SSL" and "SASL_SSL".
        connections_max_idle_ms: None is never.
        enable_idempotence: needs acks of all.
        transactional_id: implies idempotence, and so acks of all; every record then belongs to a transaction.
        transaction_timeout_ms: how long one may stay open before the broker aborts it.
        sasl_mechanism: as aiokafka's; "GSSAPI" takes tickets from the ticket cache.
        sasl_plain_password: for PLAIN and SCRAM.
        sasl_plain_username: for PLAIN and SCRAM.
        sasl_kerberos_service_name: for GSSAPI, the first part of the brokers' principals.
        sasl_kerberos_domain_name: refused with GSSAPI: the second part is the name that the cluster advertises.
        sasl_oauth_token_provider: an `AbstractTokenProvider` of aiokafka's; its token is asked for once for all
            connections, and again before it expires.

    Raises:
        ConfigurationError: a `ValueError`; an option is invalid, or not supported yet.
    """

    @clears_frames
    def __init__(  # noqa: PLR0913  # aiokafka's signature
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Literal["all", -1, 0, 1] = ACKS_NOT_GIVEN,
        key_serializer: AiokafkaSerializer | None = None,
        value_serializer: AiokafkaSerializer | None = None,
        compression_type: Literal["gzip", "snappy", "lz4", "zstd"] | None = None,
        max_batch_size: int = 16384,
        partitioner: ChoosePartition = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: object = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
    ) -> None:
        security = security_options(
            security_protocol,
            ssl_context,
            SaslArguments(
                mechanism=sasl_mechanism,
                username=sasl_plain_username,
                password=sasl_plain_password,
                token_provider=sasl_oauth_token_provider,
                kerberos_service_name=sasl_kerberos_service_name,
                kerberos_domain_name=sasl_kerberos_domain_name,
            ),
        )
        refuse_uncallable(key_serializer=key_serializer, value_serializer=value_serializer, partitioner=partitioner)
        refuse_unknown(acks, compression_type)
        warn_of_deprecated(loop=loop, api_version=api_version)
        is_transactional = transactional_id is not None
        enable_idempotence = enable_idempotence or is_transactional
        life_ms = life_of_a_record(
            request_timeout_ms, linger_ms, transaction_timeout_ms=transaction_timeout_ms if is_transactional else None
        )
        if acks is ACKS_NOT_GIVEN:
            acks = -1 if enable_idempotence else 1
        self._config = ProducerConfig(
            bootstrap_servers=with_default_port(bootstrap_servers),
            client_id=f"aiokafka-producer-{next(_CLIENT_NUMBERS)}" if client_id is None else client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=life_ms,
            close_timeout_ms=life_ms,
            max_block_ms=request_timeout_ms,
            acks=acks,
            compression_type=compression_type or "none",
            batch_size=IntOption(0).accept("max_batch_size", max_batch_size),
            partitioner=own_partitioner(partitioner),
            max_request_size=max_request_size,
            buffer_memory=buffer_for(max_request_size),
            linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_ms,
            connections_max_idle_ms=NEVER_IDLE_MS if connections_max_idle_ms is None else connections_max_idle_ms,
            enable_idempotence=enable_idempotence,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        ).replace(**security)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._producer: UnderlyingProducer = UnderlyingProducer(self._config)
        self._closed = False  # by this name: programs look at it, for want of another way to ask

    # Start and end

    async def start(self) -> None:
        """Connect; may be called again after it failed.

        Raises:
            aiokafka.errors.KafkaConnectionError: no broker answered within `request_timeout_ms`.
        """
        self._producer = self._producer.for_start(is_final=self._closed)
        try:
            with TRANSLATED:
                await self._producer.start()
        except BaseException as error:
            self._producer = self._producer.for_start(is_final=self._closed)
            if isinstance(error.__cause__, MetadataTimeoutError):
                raise KafkaConnectionError(str(error.__cause__)) from error.__cause__
            raise

    async def stop(self) -> None:
        """Deliver what was accepted, then let everything go; a second call does nothing.

        Raises:
            aiokafka.errors.IllegalStateError: another event loop's, or in a forked child.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._producer.close()
        except UndeliveredError:
            """Each record's future has its error."""
        except KafkaError as error:
            self._closed = False  # called from elsewhere: nothing is closed, and where it belongs it still can be
            other = as_aiokafka(error)
            raise other from error

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled.

        Raises:
            TypeError: always: it belongs to its event loop.
        """
        raise TypeError("an AIOKafkaProducer cannot be copied or pickled: make it in the process that uses it")

    # Sending

    async def send(  # noqa: PLR0917  # aiokafka's signature
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record: return as soon as its topic is known and there is room.

        Cancelling this call while it waits withdraws the record; cancelling the future recalls nothing.

        Returns:
            What to await for the metadata; None in its place with `acks=0`.

        Raises:
            AssertionError: neither key nor value, or there is no such partition.
            aiokafka.errors.KafkaError: of the class that aiokafka raises; `__cause__` is ours.
        """
        if value is None and key is None:
            raise AssertionError("Need at least one: key or value")
        key_bytes = serialized(self._key_serializer, key)  # first, as there
        return await self._enqueue(
            topic,
            serialized(self._value_serializer, value),
            key=key_bytes,
            partition=partition,
            timestamp=timestamp_ms,
            headers=headers,
        )

    async def send_and_wait(  # noqa: PLR0917  # aiokafka's signature
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is delivered; arguments and errors as `send`."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def flush(self) -> None:
        """Wait until the records queued before this call have ended; raises nothing of theirs.

        Their futures are then done, and the callbacks of those were called. Returns at once before `start`; while
        `stop` is running, waits for `stop`.
        """
        if self._producer.is_new:
            return
        with TRANSLATED:
            try:
                await self._producer.flush()
            except ProducerClosedError:
                with contextlib.suppress(UndeliveredError):  # as in `stop`
                    await self._producer.close()
        for _ in range(_TURNS_UNTIL_TOLD):
            await asyncio.sleep(0)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic.

        Raises:
            aiokafka.errors.UnknownTopicOrPartitionError: still unknown after `request_timeout_ms`.
        """
        with TRANSLATED:
            return set(await self._producer.partitions_for(topic))

    async def _enqueue(
        self,
        topic: str,
        value: object,
        *,
        key: object,
        partition: int | None,
        timestamp: float | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        number = as_whole(partition)
        if isinstance(number, int) and number < 0:
            raise AssertionError(f"partition must be 0 or more, or None to have it chosen, got {partition!r}")
        try:
            with TRANSLATED:
                await self._producer.enqueue(
                    topic,
                    value,
                    key=key,
                    partition=cast("int | None", number),
                    timestamp=cast("int | None", as_milliseconds(timestamp)),
                    headers=headers or None,
                    on_delivery=partial(self._ended, future),
                )
        except BaseException:
            let_go([future])
            raise
        return future

    def _ended(
        self, future: asyncio.Future[RecordMetadata], metadata: RecordMetadata | None, error: KafkaError | None
    ) -> None:
        if future.done():  # cancelled
            return
        if error is not None:
            set_error(future, undelivered(error, self._producer))
        else:
            assert metadata is not None
            answer = None if self._config.acks == 0 else _as_aiokafka_metadata(metadata)
            future.set_result(cast("RecordMetadata", answer))

    # Batches

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
        asyncio.gather(*futures).add_done_callback(partial(tell_first, promised))
        return promised

    async def _partition_of_batch(self, topic: str, partition: int | None) -> int:
        every = sorted(await self.partitions_for(topic))
        if partition is None:
            partition = self._partitioner(None, every, self._producer.partitions_with_leader(topic))
        number = as_whole(partition)
        if number not in every:
            raise AssertionError(f"Unrecognized partition: partition must be 0..{len(every) - 1}, got {partition!r}")
        return number

    # Looking

    @property
    def client(self) -> ClientView:
        """Addresses and client id for tracing libraries; not an `AIOKafkaClient`."""
        return ClientView(self._config)

    @in_any_state
    def __repr__(self) -> str:
        return f"<AIOKafkaProducer over {self._producer!r}>"


def _as_aiokafka_metadata(metadata: RecordMetadata) -> RecordMetadata:
    """As aiokafka's consumer wants it, which looks at the type; annotated as ours, for aiokafka has no annotations."""
    topic, partition, _, *rest = metadata
    return cast("RecordMetadata", AiokafkaMetadata(topic, partition, TopicPartition(topic, partition), *rest))
