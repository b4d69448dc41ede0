"""Exactly-once processing over a consumer of aiokafka: `exactly_once`."""

from aioproducer.integrations.aiokafka.batch_transaction import BatchTransaction
from aioproducer.integrations.aiokafka.exactly_once import ExactlyOnce, PoisonRecordError, exactly_once

__all__ = ["BatchTransaction", "ExactlyOnce", "PoisonRecordError", "exactly_once"]
