"""An asyncio-native producer for Apache Kafka.

The public names, and nothing else: what is not here may change. Importing this package costs next to nothing: each name
is imported when a program first uses it, and `Producer` brings all that its methods need, so that a start imports
nothing while an event loop runs. What only some programs need (the fake cluster, the command line, aiokafka) is
imported where it is used.
"""

import importlib
from typing import TYPE_CHECKING

from aioproducer._version import VERSION as __version__  # noqa: N811  # the name that Python tools look for

if TYPE_CHECKING:
    from aioproducer._native.delivery import Delivery
    from aioproducer._producer.bulk import BulkDelivery, BulkResult, OffsetRange
    from aioproducer._producer.producer import Producer
    from aioproducer._producer.record_fields import ColumnFields, RecordFields
    from aioproducer._producer.topic import Topic
    from aioproducer._producer.transaction import Transaction
    from aioproducer._transactions.prepared import PreparedTransaction
    from aioproducer.blocking import BlockingProducer, BlockingTopic
    from aioproducer.cluster import Cluster
    from aioproducer.config import ProducerConfig, ProducerOptions, TopicOptions
    from aioproducer.errors import (
        AuthenticationError,
        AuthorizationError,
        BackgroundTaskDiedError,
        BrokerConnectionError,
        BrokerError,
        BufferFullError,
        BufferTimeoutError,
        ClusterAuthorizationError,
        ConfigurationError,
        ConfigurationTypeError,
        CredentialsError,
        DeliveryTimeoutError,
        GroupAuthorizationError,
        IllegalStateError,
        InvalidPartitionError,
        InvalidRecordError,
        InvalidTopicError,
        KafkaError,
        MessageTooLargeError,
        MetadataNotReadyError,
        MetadataTimeoutError,
        NotEnoughReplicasError,
        NoTransactionError,
        Outcome,
        PrincipalChangedError,
        ProducerClosedError,
        ProducerFencedError,
        ProtocolError,
        PurgedError,
        RecordFilteredError,
        RecordTooLargeError,
        SerializationError,
        TicketError,
        TlsClosedError,
        TlsError,
        TlsRefusedError,
        TlsVerificationError,
        TokenError,
        TopicAuthorizationError,
        TransactionAbortableError,
        TransactionAbortedError,
        TransactionalIdAuthorizationError,
        TransactionError,
        TransactionTimeoutError,
        UndeliveredError,
        UnsupportedMechanismError,
        UnsupportedVersionError,
        WrongListenerError,
    )
    from aioproducer.explanation import Explanation, Waiting, WaitingCall, WaitReason
    from aioproducer.interceptors import ProducerInterceptor
    from aioproducer.java_serializers import (
        BooleanSerializer,
        DoubleSerializer,
        FloatSerializer,
        IntegerSerializer,
        LongSerializer,
        ShortSerializer,
        UUIDSerializer,
        VoidSerializer,
    )
    from aioproducer.metrics import Health, HistogramValue, Metric, MetricKind, ProducerStatistics
    from aioproducer.partitioners import (
        ConsistentRandomPartitioner,
        Fnv1aPartitioner,
        Partitioner,
        RoundRobinPartitioner,
        partition_for_key,
    )
    from aioproducer.records import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        ProducerRecord,
        RecordMetadata,
        TopicPartition,
        WatchedRecord,
    )
    from aioproducer.serializers import (
        AsyncSerializer,
        BytesSerializer,
        JsonSerializer,
        Serializer,
        SerializerWithHeaders,
        StringSerializer,
    )

__all__ = [
    "AsyncSerializer",
    "AuthenticationError",
    "AuthorizationError",
    "BackgroundTaskDiedError",
    "BlockingProducer",
    "BlockingTopic",
    "BooleanSerializer",
    "BrokerConnectionError",
    "BrokerError",
    "BufferFullError",
    "BufferTimeoutError",
    "BulkDelivery",
    "BulkResult",
    "BytesSerializer",
    "Cluster",
    "ClusterAuthorizationError",
    "ColumnFields",
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConsistentRandomPartitioner",
    "ConsumerGroupMetadata",
    "CredentialsError",
    "Delivery",
    "DeliveryTimeoutError",
    "DoubleSerializer",
    "Explanation",
    "FloatSerializer",
    "Fnv1aPartitioner",
    "GroupAuthorizationError",
    "Health",
    "HistogramValue",
    "IllegalStateError",
    "IntegerSerializer",
    "InvalidPartitionError",
    "InvalidRecordError",
    "InvalidTopicError",
    "JsonSerializer",
    "KafkaError",
    "LongSerializer",
    "MessageTooLargeError",
    "MetadataNotReadyError",
    "MetadataTimeoutError",
    "Metric",
    "MetricKind",
    "NoTransactionError",
    "NotEnoughReplicasError",
    "OffsetAndMetadata",
    "OffsetRange",
    "Outcome",
    "Partitioner",
    "PreparedTransaction",
    "PrincipalChangedError",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerStatistics",
    "ProtocolError",
    "PurgedError",
    "RecordFields",
    "RecordFilteredError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RoundRobinPartitioner",
    "SerializationError",
    "Serializer",
    "SerializerWithHeaders",
    "ShortSerializer",
    "StringSerializer",
    "TicketError",
    "TlsClosedError",
    "TlsError",
    "TlsRefusedError",
    "TlsVerificationError",
    "TokenError",
    "Topic",
    "TopicAuthorizationError",
    "TopicOptions",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionTimeoutError",
    "TransactionalIdAuthorizationError",
    "UUIDSerializer",
    "UndeliveredError",
    "UnsupportedMechanismError",
    "UnsupportedVersionError",
    "VoidSerializer",
    "WaitReason",
    "Waiting",
    "WaitingCall",
    "WatchedRecord",
    "WrongListenerError",
    "__version__",
    "partition_for_key",
]

_MODULES = (
    "errors",
    "metrics",
    "explanation",
    "records",
    "cluster",
    "partitioners",
    "java_serializers",
    "serializers",
    "interceptors",
    "security",
    "config",
    "_native.delivery",
    "_transactions.prepared",
    "_producer.record_fields",
    "_producer.bulk",
    "_producer.topic",
    "_producer.transaction",
    "_producer.producer",
    "blocking",
)
"""Where the public names are, lower layers first: a name of an earlier module imports none of the later ones."""


def __getattr__(name: str) -> object:
    """Import a public name, or a public module such as `aioproducer.errors`, on its first use (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name in _MODULES:
        return importlib.import_module(f"aioproducer.{name}")
    if name in __all__:
        for module in map(importlib.import_module, (f"aioproducer.{each}" for each in _MODULES)):
            if hasattr(module, name):
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module 'aioproducer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
