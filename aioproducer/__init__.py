"""An asyncio-native producer for Apache Kafka.

The public names, and nothing else: what is not here may change. Importing this package is cheap;
what only some programs need (the fake cluster, the command line, aiokafka) is imported where it
is used.
"""

from aioproducer._native.delivery import Delivery
from aioproducer.blocking import BlockingProducer, BlockingTopic
from aioproducer.bulk_delivery import BulkDelivery, BulkResult, OffsetRange
from aioproducer.config import ProducerConfig, ProducerOptions
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
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    RecordFilteredError,
    RecordTooLargeError,
    SerializationError,
    TlsError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    TransactionError,
    TransactionTimeoutError,
    UndeliveredError,
    UnsupportedVersionError,
)
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.metrics import ProducerStatistics
from aioproducer.partitioners import Partitioner, RoundRobinPartitioner, partition_for_key
from aioproducer.producer import Producer
from aioproducer.records import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from aioproducer.serializers import BytesSerializer, JsonSerializer, Serializer, StringSerializer
from aioproducer.topic import Topic
from aioproducer.transaction import Transaction
from aioproducer.version import VERSION as __version__  # noqa: N811  # the name that Python tools look for

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BackgroundTaskDiedError",
    "BlockingProducer",
    "BlockingTopic",
    "BrokerConnectionError",
    "BrokerError",
    "BufferFullError",
    "BufferTimeoutError",
    "BulkDelivery",
    "BulkResult",
    "BytesSerializer",
    "ClusterAuthorizationError",
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConsumerGroupMetadata",
    "Delivery",
    "DeliveryTimeoutError",
    "GroupAuthorizationError",
    "IllegalStateError",
    "InvalidPartitionError",
    "InvalidRecordError",
    "InvalidTopicError",
    "JsonSerializer",
    "KafkaError",
    "MessageTooLargeError",
    "MetadataNotReadyError",
    "MetadataTimeoutError",
    "NoTransactionError",
    "NotEnoughReplicasError",
    "OffsetAndMetadata",
    "OffsetRange",
    "Outcome",
    "Partitioner",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerStatistics",
    "ProtocolError",
    "RecordFilteredError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RoundRobinPartitioner",
    "SerializationError",
    "Serializer",
    "StringSerializer",
    "TlsError",
    "Topic",
    "TopicAuthorizationError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionTimeoutError",
    "TransactionalIdAuthorizationError",
    "UndeliveredError",
    "UnsupportedVersionError",
    "__version__",
    "partition_for_key",
]
