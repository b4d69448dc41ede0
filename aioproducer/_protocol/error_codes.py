"""All error codes of Kafka brokers: one row per code, with the traits that decisions read.

A row is `NAME = code, traits, meaning`. Decisions (`_sender/produce_outcome.py`, the metadata refresher, the
producer id) read traits, not lists of codes. The traits:

* `retriable`: the same request may succeed later.
* `metadata`: this client's leaders, topics or ids are outdated; refresh before the retry.
* `not_written`: the attempt with this response certainly appended nothing (with `base_offset` -1). An earlier
  attempt without a response stays ambiguous.
* `split`: the batch is too large; its halves may pass (KIP-126).
* `per_record`: single records were refused, and named in the response (KIP-467).
* `few_retries`: retriable, but a repeated error is probably this client's own defect.
* `idempotent_retry`: ambiguous; may be repeated only under an identity that makes duplicates harmless.
* `sequence`: the broker's view of (producer id, epoch, sequence) differs from ours.
* `renegotiate`: the broker's versions have changed since the connection was made; reconnect before the retry.
* `fatal`: nothing sent later by this producer can succeed.

Source: org.apache.kafka.common.protocol.Errors; the traits were checked on Kafka 3.9.1 and 4.3.1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self

_WORDS: Final = frozenset(
    (
        "retriable",
        "metadata",
        "not_written",
        "split",
        "per_record",
        "few_retries",
        "idempotent_retry",
        "sequence",
        "renegotiate",
        "fatal",
    )
)


class ErrorCode(IntEnum):
    """A Kafka error code; compares equal to the number on the wire."""

    traits: frozenset[str]
    meaning: str

    def __new__(cls, code: int, traits: str, meaning: str) -> Self:
        """Make one row of the table."""
        row = int.__new__(cls, code)
        row._value_ = code
        row.traits = frozenset(traits.split())
        row.meaning = meaning
        assert row.traits <= _WORDS, f"a typing error in the table: {code} has {sorted(row.traits - _WORDS)}"
        return row

    @classmethod
    def of(cls, code: int) -> ErrorCode | None:
        """Return the row of a code from the wire; None for a code newer than this table."""
        return _BY_CODE.get(code)

    @classmethod
    def in_words(cls, code: int) -> str:
        """Return the name and meaning of a code from the wire, for errors."""
        row = cls.of(code)
        return f"{row.name}: {row.meaning}" if row is not None else f"a code newer than this client ({code})"

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return "retriable" in self.traits

    @property
    def refresh_metadata(self) -> bool:
        """Whether metadata must be refreshed before a retry."""
        return "metadata" in self.traits

    @property
    def not_written(self) -> bool:
        """Whether an attempt with this code and `base_offset` -1 certainly appended nothing."""
        return "not_written" in self.traits

    @property
    def split(self) -> bool:
        """Whether the batch was too large, and its halves may pass."""
        return "split" in self.traits

    @property
    def per_record(self) -> bool:
        """Whether single records were refused, named in the response."""
        return "per_record" in self.traits

    @property
    def few_retries(self) -> bool:
        """Whether only a few attempts are worth making."""
        return "few_retries" in self.traits

    @property
    def idempotent_retry(self) -> bool:
        """Whether a retry is safe only for an idempotent producer."""
        return "idempotent_retry" in self.traits

    @property
    def sequence(self) -> bool:
        """Whether the broker disagrees about producer id, epoch or sequence."""
        return "sequence" in self.traits

    @property
    def renegotiate(self) -> bool:
        """Whether the connection's versions must be negotiated again before a retry."""
        return "renegotiate" in self.traits

    @property
    def fatal(self) -> bool:
        """Whether nothing this producer sends later can succeed."""
        return "fatal" in self.traits

    UNKNOWN_SERVER_ERROR = -1, "idempotent_retry", "the broker failed in a way it has no code for"
    NONE = 0, "", "no error"
    OFFSET_OUT_OF_RANGE = 1, "", "the offset is outside the log"
    CORRUPT_MESSAGE = 2, "retriable few_retries not_written", "the checksum or the shape of the batch is wrong"
    UNKNOWN_TOPIC_OR_PARTITION = 3, "retriable metadata not_written", "this broker does not host the partition"
    INVALID_FETCH_SIZE = 4, "", "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "retriable metadata", "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, "retriable metadata not_written", "this broker does not lead the partition"
    REQUEST_TIMED_OUT = 7, "retriable", "the replicas did not confirm in time; the leader has the records in its log"
    BROKER_NOT_AVAILABLE = 8, "retriable metadata", "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "retriable metadata", "the replica is not available"
    MESSAGE_TOO_LARGE = 10, "split not_written", "the batch is larger than max.message.bytes of the topic"
    STALE_CONTROLLER_EPOCH = 11, "", "the controller moved"
    OFFSET_METADATA_TOO_LARGE = 12, "", "the metadata string of an offset commit is too long"
    NETWORK_EXCEPTION = 13, "retriable metadata", "a broker lost its connection to another one"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "retriable not_written", "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, "retriable not_written", "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, "retriable not_written", "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, "not_written", "the topic name is invalid, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, "split not_written", "the batch is larger than segment.bytes of the topic"
    NOT_ENOUGH_REPLICAS = 19, "retriable not_written", "fewer replicas in sync than min.insync.replicas"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "retriable", "written, then fewer replicas than min.insync.replicas"
    INVALID_REQUIRED_ACKS = 21, "not_written", "acks is neither 0, 1 nor -1"
    ILLEGAL_GENERATION = 22, "", "the generation of the consumer group is not this one"
    INCONSISTENT_GROUP_PROTOCOL = 23, "", "the member's protocols do not fit the group"
    INVALID_GROUP_ID = 24, "", "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "", "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "", "the session timeout is outside the broker's range"
    REBALANCE_IN_PROGRESS = 27, "", "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, "", "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not_written", "no permission for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "", "no permission for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "fatal not_written", "no permission on the cluster (IdempotentWrite, or Create)"
    INVALID_TIMESTAMP = 32, "per_record not_written", "a timestamp is too far from the broker's clock"
    UNSUPPORTED_SASL_MECHANISM = 33, "", "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "", "the request does not fit the state of the authentication"
    UNSUPPORTED_VERSION = (
        35,
        "renegotiate few_retries not_written",
        "the broker does not know this version of the request",
    )
    TOPIC_ALREADY_EXISTS = 36, "", "the topic exists already"
    INVALID_PARTITIONS = 37, "", "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, "", "the replication factor is invalid or larger than the cluster"
    INVALID_REPLICA_ASSIGNMENT = 39, "", "the replica assignment is invalid"
    INVALID_CONFIG = 40, "", "a configuration value is invalid"
    NOT_CONTROLLER = 41, "retriable", "this broker is not the controller"
    INVALID_REQUEST = 42, "not_written", "the broker could not make sense of the request"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "not_written", "the log's message format cannot hold this batch"
    POLICY_VIOLATION = 44, "", "a policy of the broker refuses the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "sequence not_written", "the sequence is not the one the broker expects"
    DUPLICATE_SEQUENCE_NUMBER = 46, "sequence", "the broker has seen this sequence before"
    INVALID_PRODUCER_EPOCH = 47, "sequence not_written", "a newer epoch of this producer exists in the partition"
    INVALID_TXN_STATE = 48, "not_written", "the request does not fit the state of the transaction"
    INVALID_PRODUCER_ID_MAPPING = 49, "not_written", "the producer id is not the one of this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "fatal", "the transaction timeout exceeds transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, "retriable not_written", "the previous transaction is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, "", "an older transaction coordinator wrote a marker"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "fatal not_written", "no permission for the transactional id"
    SECURITY_DISABLED = 54, "", "the broker has no security features switched on"
    OPERATION_NOT_ATTEMPTED = 55, "", "another part of the same request failed first"
    KAFKA_STORAGE_ERROR = 56, "retriable metadata", "the broker's disk failed, perhaps after the append"
    LOG_DIR_NOT_FOUND = 57, "", "the log directory does not exist"
    SASL_AUTHENTICATION_FAILED = 58, "", "the credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, "sequence not_written", "the broker has no state for this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "", "a reassignment is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "", "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, "", "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "", "the delegation token belongs to someone else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "", "delegation tokens cannot be asked for on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "", "no permission for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "", "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "", "the type of the principal is not supported"
    NON_EMPTY_GROUP = 68, "", "the group still has members"
    GROUP_ID_NOT_FOUND = 69, "", "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, "retriable", "the fetch session does not exist"
    INVALID_FETCH_SESSION_EPOCH = 71, "retriable", "the epoch of the fetch session is wrong"
    LISTENER_NOT_FOUND = 72, "retriable metadata", "the leader has no listener of this name"
    TOPIC_DELETION_DISABLED = 73, "", "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, "retriable metadata", "the leader epoch sent is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, "retriable metadata", "the leader epoch sent is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "not_written", "the broker does not know this compression"
    STALE_BROKER_EPOCH = 77, "", "the broker was restarted meanwhile"
    OFFSET_NOT_AVAILABLE = 78, "retriable", "the leader has not caught up with its own offsets yet"
    MEMBER_ID_REQUIRED = 79, "", "the group wants a member id first"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "retriable metadata", "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, "", "the group is full"
    FENCED_INSTANCE_ID = 82, "", "another member uses the same instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "retriable metadata", "no replica may become leader"
    ELECTION_NOT_NEEDED = 84, "retriable metadata", "the partition has its leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "", "no reassignment is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "", "the group still reads this topic"
    INVALID_RECORD = 87, "per_record not_written", "the broker refuses a record, or two batches came at once"
    UNSTABLE_OFFSET_COMMIT = 88, "retriable", "offsets of an open transaction are pending"
    THROTTLING_QUOTA_EXCEEDED = 89, "retriable", "a quota is used up"
    PRODUCER_FENCED = (
        90,
        "fatal not_written",
        "a newer producer has the transactional id, or its transaction timed out",
    )
    RESOURCE_NOT_FOUND = 91, "", "the resource does not exist"
    DUPLICATE_RESOURCE = 92, "", "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "", "the credential does not meet the rules"
    INCONSISTENT_VOTER_SET = 94, "", "the voters do not agree on who they are"
    INVALID_UPDATE_VERSION = 95, "", "the version of the update is invalid"
    FEATURE_UPDATE_FAILED = 96, "", "a feature could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "", "a forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, "", "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, "", "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "retriable metadata not_written", "this broker does not know the topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, "", "another broker has this id"
    BROKER_ID_NOT_REGISTERED = 102, "", "no broker has this id"
    INCONSISTENT_TOPIC_ID = 103, "retriable metadata not_written", "the topic id is not the one in the broker's log"
    INCONSISTENT_CLUSTER_ID = 104, "", "the cluster id is not this cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "", "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "retriable", "the fetch session mixes names and ids"
    INELIGIBLE_REPLICA = 107, "", "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, "", "a new leader was elected by this request"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "", "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, "", "the epoch of the member is wrong"
    UNRELEASED_INSTANCE_ID = 111, "", "the instance id is still in use"
    UNSUPPORTED_ASSIGNOR = 112, "", "the group does not have this assignor"
    STALE_MEMBER_EPOCH = 113, "", "the epoch of the member is old"
    MISMATCHED_ENDPOINT_TYPE = 114, "", "the request went to the wrong kind of listener"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "", "this kind of listener is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "", "no controller has this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "", "the telemetry subscription is old"
    TELEMETRY_TOO_LARGE = 118, "", "the telemetry is too large"
    INVALID_REGISTRATION = 119, "", "the registration of the broker is invalid"
    TRANSACTION_ABORTABLE = 120, "not_written", "the transaction must be aborted"
    INVALID_RECORD_STATE = 121, "", "the record is not acquired by this share consumer"
    SHARE_SESSION_NOT_FOUND = 122, "retriable", "the share session does not exist"
    INVALID_SHARE_SESSION_EPOCH = 123, "retriable", "the epoch of the share session is wrong"
    FENCED_STATE_EPOCH = 124, "", "the epoch of the share state is old"
    INVALID_VOTER_KEY = 125, "", "the key of the voter is wrong"
    DUPLICATE_VOTER = 126, "", "the voter is in the set already"
    VOTER_NOT_FOUND = 127, "", "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, "", "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, "metadata", "the client must start again from its bootstrap servers (KIP-1102)"
    STREAMS_INVALID_TOPOLOGY = 130, "", "the topology of the streams group is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "", "the epoch of the topology is wrong"
    STREAMS_TOPOLOGY_FENCED = 132, "", "the topology is old"
    SHARE_SESSION_LIMIT_REACHED = 133, "retriable", "the broker has no room for another share session"


_BY_CODE: Final[dict[int, ErrorCode]] = {int(row): row for row in ErrorCode}

RENEGOTIATE: Final = frozenset(row for row in ErrorCode if row.renegotiate)
"""Codes after which the connection takes no new request: versions must be negotiated again."""
