"""Transactions of the model where time, brokers and tests have a hand in it; the rest is in the contracts."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

import pytest
from kio.schema.write_txn_markers.v1.request import WritableTxnMarker, WritableTxnMarkerTopic

from aioproducer.testing import ApiKey, CoordinatorKind, Where
from aioproducer.testing.fake_broker.log.partition import committed_records
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.contracts.clients import odd_batch, record
from tests.testing.model_network import WALL_CLOCK_MS, ModelClient, ModelNetwork

TRANSACTIONAL = 0x10


class Identity(NamedTuple):
    """The error, and what the producer has by now."""

    error: int
    producer_id: int
    epoch: int


class ModelProducer:
    """A producer with transactional id `x` that sends single requests to the model's brokers."""

    def __init__(self, network: ModelNetwork, transactional_id: str = "x") -> None:
        self.network = network
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._clients: dict[int, ModelClient] = {}

    def client(self, node_id: int) -> ModelClient:
        if node_id not in self._clients:
            self._clients[node_id] = self.network.client(node_id)
        return self._clients[node_id]

    def coordinator(self) -> int:
        asked = self.client(self.network.model.live_nodes()[0])
        return int(asked.ask(ApiKey.FIND_COORDINATOR, 2, key=self.transactional_id, key_type=1).node_id)

    def _ask(self, api: ApiKey, version: int, **fields: object):  # noqa: ANN202 - one of kio's classes
        asked = self.client(self.coordinator())
        return asked.ask(api, version, transactional_id=self.transactional_id, **fields)

    def _identity(self) -> dict[str, object]:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    def init(self, *, timeout_s: float = 60.0) -> Identity:
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout=timedelta(seconds=timeout_s))
        if int(answer.error_code) == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Identity(int(answer.error_code), answer.producer_id, answer.producer_epoch)

    def add_partition(self, topic: str = "t", partition: int = 0) -> int:
        """Send AddPartitionsToTxn; returns the error."""
        topics = import_module("kio.schema.add_partitions_to_txn.v3.request").AddPartitionsToTxnTopic
        answer = self.client(self.coordinator()).ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(topics(name=topic, partitions=(partition,)),),
        )
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(self, sequence: int = 0, *, version: int = 11, acks: int = -1) -> int:
        self.send_produce(sequence, version=version, acks=acks)
        return self.produced(version)

    def send_produce(self, sequence: int = 0, *, version: int = 11, acks: int = -1) -> None:
        message = import_module(f"kio.schema.produce.v{version}.request")
        batch = odd_batch(
            [record(0)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            timestamp=WALL_CLOCK_MS,
        )
        part = message.PartitionProduceData(index=0, records=batch)
        data = message.TopicProduceData(name="t", partition_data=(part,))
        fields = {"transactional_id": self.transactional_id, "acks": acks, "timeout": timedelta(seconds=5)}
        leader = self.client(self.network.partition().leader)
        leader.send_message(ApiKey.PRODUCE, version, topic_data=(data,), **fields)

    def has_answer(self) -> bool:
        return bool(self.client(self.network.partition().leader).received)

    def produced(self, version: int = 11) -> int:
        answer = self.client(self.network.partition().leader).answer(ApiKey.PRODUCE, version)
        return int(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, commit: bool, version: int = 4) -> Identity:
        answer = self._ask(ApiKey.END_TXN, version, committed=commit, **self._identity())
        found = Identity(
            int(answer.error_code), getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)
        )
        if found.error == 0 and found.producer_id >= 0:
            self.producer_id, self.epoch = found.producer_id, found.epoch
        return found

    @property
    def state(self) -> str:
        entry = self.network.model.transactions.entry(self.transactional_id)
        assert entry is not None
        return entry.state.value


CONCURRENT = 51


def begun(network: ModelNetwork, *, timeout_s: float = 60.0) -> ModelProducer:
    producer = ModelProducer(network)
    assert producer.init(timeout_s=timeout_s).error == 0
    assert producer.add_partition() == 0
    assert producer.produce() == 0
    return producer


def seen(network: ModelNetwork) -> list[bytes | None]:
    return [found.value for found in committed_records(network.partition())]


def test_id_expires_when_it_is_not_used() -> None:
    network = ModelNetwork(transactional_id_expiration_s=10.0)
    producer = begun(network, timeout_s=600.0)
    network.advance(30.0)
    used = [producer.state, producer.end(commit=True).error]
    network.advance(9.0)
    used.append(producer.init().error)
    network.advance(9.0)
    used.append(producer.add_partition())
    producer.end(commit=False)
    network.advance(11.0)

    assert used == ["Ongoing", 0, 0, 0]
    assert producer.add_partition() == 49
    assert network.model.transactions.entry("x") is None
    assert not network.model.transactions.expire("x", network.now)


def test_transaction_is_aborted_after_its_time_out() -> None:
    network = ModelNetwork(transaction_version=0)
    producer = begun(network, timeout_s=10.0)
    network.advance(9.9)
    before = producer.state

    network.advance(0.2)

    assert (before, producer.state, producer.produce(1), producer.end(commit=True).error) == (
        "Ongoing", "CompleteAbort", 47, 90,
    )  # fmt: skip
    assert (seen(network), network.partition().last_stable_offset) == ([], 2)


def test_time_of_a_transaction_is_over_with_its_end() -> None:
    network = ModelNetwork()
    producer = begun(network, timeout_s=10.0)
    network.advance(8)
    producer.end(commit=True)
    producer.add_partition()
    network.advance(8)

    assert producer.state == "Ongoing"


def test_completing_takes_marker_delay_s() -> None:
    network = ModelNetwork(marker_delay_s=0.5)
    producer = begun(network)
    ended = producer.end(commit=True).error

    meanwhile = [producer.add_partition(), producer.end(commit=True).error, producer.init().error]
    produced = [producer.produce(1, version=11), producer.produce(2, version=12)]
    before = seen(network)
    network.advance(0.5)

    # until its marker is there the transaction is open in the partition, so its leader does not ask the coordinator
    assert (ended, meanwhile, produced) == (0, [CONCURRENT] * 3, [0, 0])
    assert (before, seen(network), producer.state) == ([], [b"v"] * 3, "CompleteCommit")


def ended_as_version_2(network: ModelNetwork) -> ModelProducer:
    producer = ModelProducer(network)
    producer.init()
    producer.produce(version=12)
    producer.end(commit=True, version=5)
    return producer


def test_early_record_waits_for_markers_of_version_2() -> None:
    """The leader asks the coordinator again every 20 ms."""
    network = ModelNetwork(marker_delay_s=0.03)
    producer = ended_as_version_2(network)

    producer.send_produce(version=12)
    network.advance(0.035)
    before = producer.has_answer()
    network.advance(0.006)

    assert (before, producer.produced(12), producer.state) == (False, 0, "Ongoing")


def test_early_record_is_refused_when_markers_take_long() -> None:
    network = ModelNetwork(marker_delay_s=0.5)
    producer = ended_as_version_2(network)

    under_version_1 = producer.produce(version=11)
    producer.send_produce(version=12)
    network.advance(0.095)
    before = producer.has_answer()
    network.advance(0.006)

    assert (under_version_1, before, producer.produced(12)) == (19, False, CONCURRENT)


def test_early_record_is_lost_with_its_leader() -> None:
    """A restarted leader does not append the batch it held before."""
    network = ModelNetwork(marker_delay_s=0.03)
    producer = ended_as_version_2(network)
    producer.send_produce(version=12)

    network.model.kill(1, network.now)
    network.model.restart(1, network.now)
    network.advance(0.2)

    assert (network.partition().log.end_offset, producer.state) == (2, "CompleteCommit")


def test_marker_waits_for_a_leader() -> None:
    """The transaction is completing until then."""
    network = ModelNetwork(2)
    producer = begun(network)
    partition = network.partition()
    leader = partition.leader
    partition.lose_leader(network.now)
    producer.end(commit=True)
    waiting = producer.state

    partition.move_leader(leader, network.now)

    assert (waiting, producer.state, seen(network)) == ("PrepareCommit", "CompleteCommit", [b"v"])


def test_marker_is_written_again_by_the_next_leader() -> None:
    """The first leader died before its marker was copied."""
    network = ModelNetwork(2, replication_delay_s=0.5)
    producer = ModelProducer(network)
    producer.init()
    producer.add_partition()
    producer.produce(acks=1)
    network.advance(0.5)
    producer.end(commit=True)
    waiting = producer.state

    network.model.kill(network.partition().leader, network.now)
    network.settle()

    assert (waiting, producer.state, seen(network)) == ("PrepareCommit", "CompleteCommit", [b"v"])


def test_deleted_topic_does_not_hold_up_a_transaction() -> None:
    """A deleted partition needs no marker."""
    network = ModelNetwork()
    producer = begun(network)
    network.model.topics.delete(network.topic(), network.now)

    assert (producer.end(commit=True).error, producer.state) == (0, "CompleteCommit")


def test_raised_epoch_keeps_a_transaction_from_completing() -> None:
    """Kafka before 4.0 accepts such a batch, and then no marker with the coordinator's epoch."""
    network = ModelNetwork(profile=profile_named("3.9.1"))
    producer = begun(network)
    producer.epoch += 1
    taken = producer.produce()
    producer.epoch -= 1

    assert (taken, producer.end(commit=True).error, producer.state) == (0, 0, "PrepareCommit")
    assert network.partition().last_stable_offset == 0


# Coordinators


def test_coordinator_moves() -> None:
    network = ModelNetwork(2)
    producer = begun(network)
    old = producer.coordinator()
    network.model.coordinators.move(CoordinatorKind.TRANSACTION, "x", 3 - old, now=network.now)

    at_the_old = producer.client(old).ask(
        ApiKey.END_TXN, 3, transactional_id="x", producer_id=producer.producer_id, producer_epoch=0, committed=True
    )

    assert (int(at_the_old.error_code), producer.coordinator(), producer.end(commit=True).error) == (16, 3 - old, 0)


def test_coordinator_dies() -> None:
    network = ModelNetwork(2, coordinator_load_s=1.0)
    producer = ModelProducer(network)
    producer.init()
    network.model.kill(producer.coordinator(), network.now)
    network.settle()

    loading = producer.init().error
    network.advance(1.0)

    assert (loading, producer.init()) == (14, (0, producer.producer_id, 1))


def test_leader_cannot_ask_a_coordinator_that_loads() -> None:
    network = ModelNetwork(2, coordinator_load_s=1.0)
    producer = ModelProducer(network)
    producer.init()
    network.model.coordinators.move(CoordinatorKind.TRANSACTION, "x", 3 - producer.coordinator(), now=network.now)

    assert [producer.produce(version=version) for version in (11, 12)] == [19, 19]


def test_coordinator_epoch_is_in_the_marker() -> None:
    """Every change increments it, so a marker of a former coordinator is refused by 52."""
    network = ModelNetwork(2)
    producer = begun(network)
    network.model.coordinators.move(CoordinatorKind.TRANSACTION, "x", 3 - producer.coordinator(), now=network.now)
    producer.end(commit=True)

    entry = network.partition().producers.entry(producer.producer_id)

    assert entry is not None
    assert (entry.coordinator_epoch, _write_marker(network, producer, coordinator_epoch=0)) == (1, 52)


# Versions change while running


def test_upgrade_to_version_2() -> None:
    network = ModelNetwork(transaction_version=0)
    producer = begun(network)
    before = _finalized(network)
    producer.end(commit=True)
    network.model.features.finalize_transaction_version(2)

    produced = producer.produce(1, version=12)

    assert (before, _finalized(network)) == ((1, None), (2, 2))
    assert (produced, producer.end(commit=True, version=5).error, producer.epoch) == (0, 0, 1)


def test_downgrade_in_a_transaction_of_version_2() -> None:
    """The unsupported change gets 35, later requests 51, until another coordinator takes over."""
    network = ModelNetwork(2)
    producer = ModelProducer(network)
    producer.init()
    producer.produce(version=12)
    network.model.features.finalize_transaction_version(0)

    errors = [producer.end(commit=True, version=5).error, producer.end(commit=True, version=4).error]
    network.model.coordinators.move(CoordinatorKind.TRANSACTION, "x", 3 - producer.coordinator(), now=network.now)

    assert (errors, producer.end(commit=True, version=4).error, seen(network)) == ([35, CONCURRENT], 0, [b"v"])


def test_release_without_the_feature_cannot_have_it() -> None:
    with pytest.raises(ValueError, match=r"Kafka 3\.9\.1 has transaction\.version 0 to 0, not 2"):
        ModelNetwork(profile=profile_named("3.9.1"), transaction_version=2)
    with pytest.raises(ValueError, match=r"not 3"):
        ModelNetwork().model.features.finalize_transaction_version(3)


def _finalized(network: ModelNetwork) -> tuple[int, int | None]:
    """Return the epoch of the features and the level of transaction.version in ApiVersions 3."""
    fields = {"client_software_name": "a", "client_software_version": "1"}
    answer = network.client().ask(ApiKey.API_VERSIONS, 3, **fields)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return answer.finalized_features_epoch, levels.get("transaction.version")


# Hanging transactions


def test_transaction_can_hang_without_verification() -> None:
    """Before Kafka 3.6, or with verification off, a transaction can hang until a marker written by hand ends it."""
    network = ModelNetwork(transaction_partition_verification=False)
    producer = begun(network)
    producer.end(commit=True)
    late = producer.produce(1)
    stuck_at = network.partition().last_stable_offset

    written = _write_marker(network, producer, coordinator_epoch=0)

    assert (late, stuck_at, written) == (0, 2, 0)
    assert (network.partition().last_stable_offset, seen(network)) == (4, [b"v"])


def _write_marker(network: ModelNetwork, producer: ModelProducer, *, coordinator_epoch: int) -> int:
    """An abort for partition 0, as `kafka-transactions.sh abort` writes it; returns the error."""
    topics = (WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    answer = network.client(network.partition().leader).ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=(marker,))
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def test_cut_log_forgets_the_transactions_that_were_in_it() -> None:
    """A leader's death may take the records of an open transaction along."""
    network = ModelNetwork(2, replication_delay_s=0.5)
    producer, partition = ModelProducer(network), network.partition()
    producer.init()
    producer.add_partition()
    producer.produce(acks=1)
    before = partition.transactions.first_offset(producer.producer_id)

    network.model.kill(partition.leader, network.now)
    network.settle()

    assert (before, partition.transactions.first_offset(producer.producer_id)) == (0, None)
    assert (partition.last_stable_offset, partition.log.end_offset) == (0, 0)


# Faults


@pytest.mark.parametrize("code", [14, 15, 16, 51, 53, 90])
def test_fault_instead_of_an_end(code: int) -> None:
    network = ModelNetwork()
    producer = begun(network)
    network.model.faults.error(code, Where(api=ApiKey.END_TXN))

    assert (producer.end(commit=True).error, producer.state, producer.end(commit=True).error) == (code, "Ongoing", 0)


def test_fault_of_one_partition_keeps_the_others_out() -> None:
    network = ModelNetwork(topics={"t": 2})
    producer = ModelProducer(network)
    producer.init()
    network.model.faults.error(29, Where(api=ApiKey.ADD_PARTITIONS_TO_TXN, topic="t", partition=0))

    assert (producer.add_partition(), producer.add_partition(partition=1), producer.add_partition()) == (29, 0, 0)


def test_connection_dropped_after_the_end() -> None:
    network = ModelNetwork()
    producer = begun(network)
    network.model.faults.drop_connection(Where(api=ApiKey.END_TXN), after_append=True)
    client = producer.client(producer.coordinator())
    client.send_message(
        ApiKey.END_TXN, 4, transactional_id="x", producer_id=producer.producer_id, producer_epoch=0, committed=True
    )

    assert (client.closed_because is not None, producer.state, seen(network)) == (True, "CompleteCommit", [b"v"])
