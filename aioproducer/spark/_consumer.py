"""The consumer that tasks read with and the driver asks; aiokafka is imported here and by the two that use it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError

from aioproducer.errors import KafkaError
from aioproducer.integrations._aiokafka_security import aiokafka_security
from aioproducer.spark._source_options import SourceOptions, connection_config, consumer_arguments

START_INTERVAL_S: Final = 0.5


@asynccontextmanager
async def consumer_of(
    options: SourceOptions, *, group_id: str | None = None, patience_s: float = 0.0
) -> AsyncIterator[AIOKafkaConsumer]:
    """Run a consumer that commits nothing by itself and does not guess where to begin.

    Args:
        options: of the read.
        group_id: to which offsets are committed.
        patience_s: how long it goes on trying while no broker is there.

    Raises:
        KafkaError: no broker is there.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while (consumer := await _started(options, group_id)) is None:
        if asyncio.get_running_loop().time() >= deadline:
            limit = f" for {patience_s:g} s (kafkaConsumer.pollTimeoutMs)" if patience_s else ""
            raise KafkaError(f"no broker answers{limit}: {options.kafka['bootstrap.servers']}")
        await asyncio.sleep(START_INTERVAL_S)
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _started(options: SourceOptions, group_id: str | None) -> AIOKafkaConsumer | None:
    """Return a consumer that has reached a broker; None if none is there."""
    consumer = AIOKafkaConsumer(
        group_id=group_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=options.isolation,
        **dict(consumer_arguments(options.kafka)),
        **await aiokafka_security(connection_config(options.kafka)),
    )
    try:
        await consumer.start()
    except BaseException as error:
        await consumer.stop()
        if isinstance(error, KafkaConnectionError):
            return None
        raise
    return consumer
