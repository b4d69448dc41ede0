"""Notes of what the parts of a producer report upward."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer.errors import KafkaError
from aioproducer.records import TopicPartition


class EventNotes:  # noqa: PLR0904  # one per event
    """Implements `ProducerEvents` and `NetworkEvents`; a test may put a function of its own in the place of one."""

    def __init__(self) -> None:
        self.wakes = 0
        self.opened: list[PartitionQueue] = []
        self.filled: list[tuple[TopicPartition, int]] = []
        self.unknown: list[str] = []
        self.failed: list[KafkaError] = []
        self.lost_logs: list[PartitionQueue] = []
        self.abandoned = 0
        self.fatal: list[KafkaError] = []
        self.failed_nodes = 0
        self.tried_again = 0
        self._followers: list[MetadataRefresher] = []
        self.on_timer: Callable[[float], object] = self.nothing
        self.on_filled: Callable[[TopicPartition, int], object] = lambda place, size: self.filled.append((place, size))
        self.on_recreated: Callable[[PartitionQueue, bool], object] = self.nothing

    def nothing(self, *_: object) -> None:
        """Take no note."""

    def follow(self, metadata: MetadataRefresher) -> None:
        """Have metadata follow what the network reports."""
        self._followers.append(metadata)

    def wake(self) -> None:
        """Count."""
        self.wakes += 1

    memory_returned = wake

    def timer_set_earlier(self, when: float) -> None:
        """Pass on."""
        self.on_timer(when)

    def batch_opened(self, queue: PartitionQueue) -> None:
        """Note the partition."""
        self.opened.append(queue)

    def batch_filled(self, topic_partition: TopicPartition, size: int) -> None:
        """Pass on."""
        self.on_filled(topic_partition, size)

    def unknown_partition(self, topic: str) -> None:
        """Note the topic."""
        self.unknown.append(topic)

    def topic_recreated(self, queue: PartitionQueue, *, exists: bool) -> None:
        """Pass on."""
        self.on_recreated(queue, exists)

    def records_failed(self, error: KafkaError) -> None:
        """Note the error."""
        self.failed.append(error)

    def abandoned_batch_ended(self) -> None:
        """Count."""
        self.abandoned += 1

    def log_lost(self, queue: PartitionQueue) -> None:
        """Note the partition."""
        self.lost_logs.append(queue)

    def failed_for_good(self, error: KafkaError) -> None:
        """Note the error."""
        self.fatal.append(error)

    def raise_not_accepting(self) -> NoReturn:
        """Fail the test: everything is open."""
        pytest.fail("the appender is closed")

    def node_failed(self) -> None:
        """Count."""
        self.failed_nodes += 1
        for metadata in self._followers:
            metadata.node_failed()

    def node_tried_again(self) -> None:
        """Count."""
        self.tried_again += 1
        for metadata in self._followers:
            metadata.node_tried_again()
