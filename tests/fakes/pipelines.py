"""A native pipeline over the core of a producer, with hooks and without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from aioproducer._native.delivery import Delivery
from aioproducer._native.record_pipeline import RecordPipeline
from aioproducer.cluster import Cluster
from aioproducer.errors import InvalidPartitionError
from aioproducer.interceptors import InterceptorChain, ProducerInterceptor
from aioproducer.partitioners import Partitioner
from aioproducer.serializers import SerializerArgument, bind_serializer
from tests.fakes.core_parts import CoreParts, cluster_of

if TYPE_CHECKING:
    from aioproducer._producer.unfinished_record import UnfinishedRecord


class NoLog:
    def warning(self, event: str, **fields: object) -> None:
        """Drop an event."""

    debug = info = error = warning


class PlainPreparation:
    """The rare calls of the pipeline; it knows the topic `t` with two partitions."""

    def __init__(self) -> None:
        self.closed_batches: dict[str, int] = {}
        self.refusals: list[str] = []
        self.cluster: Cluster = cluster_of((1, 1))

    def refused(self, topic: str, _partition: object, _headers: object, error: Exception) -> None:
        self.refusals.append(f"{topic}: {type(error).__name__}")

    def dropped(self, topic: str, _timestamp: object, _on_delivery: object) -> Delivery:
        raise AssertionError(topic)

    def unfinished(self, *arguments: object) -> UnfinishedRecord:
        raise AssertionError(arguments)

    def refuse_pending(self, *parts: object) -> NoReturn:
        raise AssertionError(parts)

    def notify_of_closed_batches(self) -> None:
        pass

    def partitioner_failed(self, topic: str, error: BaseException) -> InvalidPartitionError:
        return InvalidPartitionError(f"{topic}: {error}")

    def checked_choice(self, choice: object, topic: str, _partitions: int) -> int:
        raise AssertionError(choice, topic)


def pipeline_of(
    core: CoreParts,
    *,
    interceptors: Sequence[ProducerInterceptor] = (),
    serializer: SerializerArgument | None = None,
    partitioner: Partitioner | None = None,
    preparation: PlainPreparation | None = None,
) -> RecordPipeline:
    preparation = preparation or PlainPreparation()
    bound = None if serializer is None else bind_serializer("serializer", serializer)
    return RecordPipeline(
        core.appender,
        preparation,
        preparation,
        interceptors=InterceptorChain(interceptors, NoLog()),
        key_serializer=bound,
        value_serializer=bound,
        partitioner=partitioner,
    )
