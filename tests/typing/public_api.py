"""Types of producers and deliveries that checkers must accept and infer, as users write. Checked, never run."""

import asyncio
import concurrent.futures
from typing import assert_type

from aioproducer import (
    BlockingProducer,
    BulkDelivery,
    BulkResult,
    ConsumerGroupMetadata,
    Delivery,
    JsonSerializer,
    KafkaError,
    OffsetAndMetadata,
    OffsetRange,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    ProducerStatistics,
    RecordMetadata,
    TopicPartition,
    Transaction,
)


async def producers() -> None:
    async with Producer("localhost:9092", linger_ms=5, acks="all", compression_type="zstd") as producer:
        assert_type(producer, Producer)
        assert_type(producer.config, ProducerConfig)
        assert_type(producer.statistics(), ProducerStatistics)
        assert_type(await producer.partitions_for("orders"), list[int])
        assert_type(await producer.flush(), None)
        await producer.flush(1.5)
    started = await Producer(["a:9092", "b:9092"], value_serializer=JsonSerializer()).start(wait=False)
    assert_type(started, Producer)
    await started.close(timeout=5)
    Producer(ProducerConfig(bootstrap_servers="a:9092"))
    Producer("a:9092", linger=5)  # type: ignore[call-arg]
    Producer("a:9092", linger_ms="5")  # type: ignore[arg-type]


async def verbs(producer: Producer) -> None:
    assert_type(producer.send("orders", b"v"), Delivery)
    assert_type(await producer.send("orders", b"v", key=b"k", partition=0, timestamp=0), RecordMetadata)
    assert_type(await producer.send_and_wait("orders", b"v", headers=[("h", b"1"), ("n", None)]), RecordMetadata)
    assert_type(await producer.enqueue("orders", b"v"), Delivery)
    assert_type(await (await producer.enqueue("orders")), RecordMetadata)
    assert_type(producer.send_nowait("orders", b"v", on_delivery=note), Delivery)
    assert_type(producer.send_threadsafe("orders", b"v"), concurrent.futures.Future[RecordMetadata])
    bulk = await producer.send_many("orders", [b"a", b"b"], keys=(key for key in (b"k", b"l")))
    assert_type(bulk, BulkDelivery)
    result = await bulk
    assert_type(result, BulkResult)
    assert_type(result.offsets[TopicPartition("orders", 0)], OffsetRange)
    producer.send("orders", b"v", partition="0")  # type: ignore[arg-type]
    producer.send("orders", b"v", headers={"a": b"1"})  # type: ignore[dict-item]
    producer.send(b"orders", b"v")  # type: ignore[arg-type]


def note(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
    if metadata is not None:
        assert_type(metadata.offset, int)
    elif error is not None:
        assert_type(error, KafkaError)


async def deliveries(producer: Producer) -> None:
    """Everything that asyncio does with a future."""
    first, second = producer.send("orders", b"a"), producer.send("orders", b"b")
    assert_type(await first, RecordMetadata)
    assert_type(await asyncio.gather(first, second), tuple[RecordMetadata, RecordMetadata])
    assert_type(await asyncio.gather(*[first, second]), list[RecordMetadata])
    assert_type(await asyncio.gather(*[first], return_exceptions=True), list[RecordMetadata | BaseException])
    assert_type(await asyncio.wait_for(first, 5), RecordMetadata)
    assert_type(await asyncio.shield(first), RecordMetadata)
    done, pending = await asyncio.wait([first, second], return_when=asyncio.FIRST_EXCEPTION)
    assert_type(done, set[Delivery])
    assert_type(pending, set[Delivery])
    for completed in asyncio.as_completed([first, second], timeout=5):
        assert_type(await completed, RecordMetadata)
    assert_type(first.result(), RecordMetadata)
    assert_type(first.exception(), BaseException | None)
    assert_type(first.done(), bool)
    assert_type(first.cancel("enough"), bool)
    assert_type(first.timestamp, int)
    first.add_done_callback(lambda future: assert_type(future.result(), RecordMetadata))
    async with asyncio.timeout(1), asyncio.TaskGroup() as group:
        task = group.create_task(producer.send_and_wait("orders", b"v"))
    assert_type(task.result(), RecordMetadata)


def blocking() -> None:
    with BlockingProducer("localhost:9092", linger_ms=5) as producer:
        assert_type(producer, BlockingProducer)
        assert_type(producer.send("orders", b"v", key=b"k"), RecordMetadata)
        assert_type(producer.send_threadsafe("orders", b"v"), concurrent.futures.Future[RecordMetadata])
        assert_type(producer.send_many("orders", [b"v"]), BulkResult)
        assert_type(producer.partitions_for("orders"), list[int])
        assert_type(producer.statistics(), ProducerStatistics)
        producer.enqueue("orders", b"v", on_delivery=note)
        producer.flush(timeout=5)
    producer.send("orders", b"v", partition=1.0)  # type: ignore[arg-type]


async def transactions(producer: Producer, consumer_group: ConsumerGroupMetadata) -> None:
    """Blocks, and the verbs that port Java code."""
    async with producer.transaction() as txn:
        assert_type(txn, Transaction)
        assert_type(await txn.send("orders", b"v"), RecordMetadata)
        assert_type(await txn.enqueue("orders", b"v"), Delivery)
        assert_type(await txn.send_many("orders", [b"v"]), BulkDelivery)
        assert_type(await txn.send_offsets({TopicPartition("orders", 0): 5}, "readers"), None)
        await txn.send_offsets({("orders", 0): OffsetAndMetadata(5, "text")}, consumer_group)
        await txn.send_offsets({("orders", 0): "5"}, "readers")  # type: ignore[dict-item]
        await txn.send_offsets([("orders", 0, 5)], "readers")  # type: ignore[arg-type]
        txn.commit()  # type: ignore[attr-defined]
    assert_type(await producer.init_transactions(), None)
    assert_type(await producer.begin_transaction(), None)
    assert_type(await producer.send_offsets({("orders", 0): 5}, "readers"), None)
    assert_type(await producer.commit_transaction(), None)
    assert_type(await producer.abort_transaction(), None)
    prepared = assert_type(await producer.prepare_transaction(), PreparedTransaction)
    assert_type(await producer.complete_transaction(prepared, commit=False), None)
    Producer("a:9092", transactional_id="billing-1", transaction_timeout_ms=5000)
    Producer("a:9092", transactional_id=5)  # type: ignore[arg-type]


def blocking_transactions(producer: BlockingProducer) -> None:
    """The same verbs, without `await`."""
    with producer.transaction() as same:
        assert_type(same, BlockingProducer)
        assert_type(same.send("orders", b"v"), RecordMetadata)
    assert_type(producer.commit_transaction(), None)
