"""The leader's check of a transactional batch with the coordinator, before it checks the batch itself.

Until the first batch of a transaction is in a partition's log, its leader asks the transaction coordinator: up to
Produce 11 whether the partition was added (KIP-890 part 1), since 12 to add it (part 2).

    asked                                Produce 3-10   11     12-
    another producer id, or none         49             49     49
    an old epoch                         47             47     47
    the partition was not added          48             120    (it is added)
    the transaction is completing        19             19     51, after 0.1 s of asking again
    the coordinator cannot be asked      19             19     19
    transaction.version is 0             -              -      35

Source: ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager in Apache Kafka.
"""

from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.exchange import SharedState
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.transactions.transaction_entry import Claim
from aioproducer.testing.fake_broker.wire import codes

NOT_ADDED = "Partition was not added to the transaction"
FIRST_PRODUCE_WITH_ABORTABLE = 11
FIRST_PRODUCE_THAT_ADDS = 12
COORDINATOR_ERRORS = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR}
)


def meets_markers(cluster: SharedState, claim: Claim, now: float) -> bool:
    """Whether the producer's last transaction still lacks markers, so that no partition can be added."""
    coordinators, key = cluster.coordinators, claim.transactional_id
    node_id = coordinators.node_of(CoordinatorKind.TRANSACTION, key, now)
    return (
        not coordinators.error_at(node_id, CoordinatorKind.TRANSACTION, key, now=now)
        and cluster.transactions.refusal_to_add(claim, now) == codes.CONCURRENT_TRANSACTIONS
    )


def admit(cluster: SharedState, claim: Claim, partition: TopicPartition, *, adds: bool, now: float) -> int:
    """Ask the coordinator whether a producer may write to a partition; returns its error."""
    if not claim.transactional_id:
        return codes.INVALID_REQUEST
    coordinators, key = cluster.coordinators, claim.transactional_id
    node_id = coordinators.node_of(CoordinatorKind.TRANSACTION, key, now)
    error = coordinators.error_at(node_id, CoordinatorKind.TRANSACTION, key, now=now)
    if error:
        return error
    if adds:
        return cluster.transactions.add_partitions(claim, [partition], is_version_2=True, now=now)
    return cluster.transactions.verify_partition(claim, partition)


def produce_error(error: int, version: int) -> int:
    if error in COORDINATOR_ERRORS or (error == codes.CONCURRENT_TRANSACTIONS and version < FIRST_PRODUCE_THAT_ADDS):
        return codes.NOT_ENOUGH_REPLICAS
    if error == codes.TRANSACTION_ABORTABLE and version < FIRST_PRODUCE_WITH_ABORTABLE:
        return codes.INVALID_TXN_STATE
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED else error
