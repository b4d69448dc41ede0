"""An asyncio-native producer for Apache Kafka.

The public names, and nothing else: what is not here may change. Importing this package is cheap;
what only some programs need (the fake cluster, the command line, aiokafka) is imported where it
is used.
"""

from aioproducer._native.delivery import Delivery
from aioproducer._producer.bulk import BulkDelivery, BulkResult, OffsetRange
from aioproducer._producer.producer import Producer
from aioproducer._producer.topic import Topic
from aioproducer._producer.transaction import Transaction
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._version import VERSION as __version__  # noqa: N811  # the name that Python tools look for
from aioproducer.blocking import BlockingProducer, BlockingTopic
from aioproducer.cluster import Cluster
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
from aioproducer.metrics import ProducerStatistics
from aioproducer.partitioners import Partitioner, RoundRobinPartitioner, partition_for_key
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, ProducerRecord, RecordMetadata, TopicPartition
from aioproducer.serializers import BytesSerializer, JsonSerializer, Serializer, StringSerializer

__all__ = [
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
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConsumerGroupMetadata",
    "Delivery",
    "DeliveryTimeoutError",
    "DoubleSerializer",
    "FloatSerializer",
    "GroupAuthorizationError",
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
    "NoTransactionError",
    "NotEnoughReplicasError",
    "OffsetAndMetadata",
    "OffsetRange",
    "Outcome",
    "Partitioner",
    "PreparedTransaction",
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
    "ShortSerializer",
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
    "UUIDSerializer",
    "UndeliveredError",
    "UnsupportedVersionError",
    "VoidSerializer",
    "__version__",
    "partition_for_key",
]
