"""The two producers with transactions: `Producer`, and the stand-in for aiokafka's."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import errors

from aioproducer import ProducerFencedError, TransactionAbortableError
from aioproducer.testing import FakeCluster
from tests.compat.aiokafka_programs import transactional
from tests.fakes.transactional_cluster import committed, producer_of


@dataclass(frozen=True, slots=True)
class Face:
    make: Callable[[FakeCluster], Any]  # returns a producer with the transactional id "billing-1", not started
    failure: type[Exception]  # error of a transaction that must be aborted
    fenced: type[Exception]

    async def send(self, producer: Any, value: bytes, partition: int = 0) -> asyncio.Future[Any]:
        sent = producer.send("t", value, partition=partition)
        return await sent if asyncio.iscoroutine(sent) else sent

    async def one_more(self, producer: Any, cluster: FakeCluster) -> None:
        """Check that the next transaction works, and is all that readers see."""
        await producer.begin_transaction()
        for partition in range(2):
            await self.send(producer, b"next", partition)
        await producer.commit_transaction()
        assert committed(cluster) == [b"next", b"next"]


OURS = Face(producer_of, TransactionAbortableError, ProducerFencedError)
AIOKAFKAS = Face(transactional, errors.KafkaError, errors.ProducerFenced)

on_both_faces = pytest.mark.parametrize("face", [OURS, AIOKAFKAS], ids=["Producer", "AIOKafkaProducer"])


def cause_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
