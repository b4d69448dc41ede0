"""Writes one trace, step by step, drawing from one seeded source of randomness."""

from collections.abc import Sequence
from random import Random
from typing import Unpack

from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import BatchWords, PartitionWords, Step

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -2, -1, -3, -4
CODECS = (0, 0, 0, 1, 2, 3, 4)

_NEWEST = {
    "PRODUCE": 13,
    "FETCH": 18,
    "LIST_OFFSETS": 11,
    "METADATA": 13,
    "FIND_COORDINATOR": 6,
    "API_VERSIONS": 5,
    "CREATE_TOPICS": 7,
    "DELETE_TOPICS": 6,
    "DELETE_RECORDS": 2,
    "INIT_PRODUCER_ID": 5,
    "OFFSET_FOR_LEADER_EPOCH": 4,
    "CREATE_PARTITIONS": 3,
    "ADD_PARTITIONS_TO_TXN": 3,
    "ADD_OFFSETS_TO_TXN": 4,
    "END_TXN": 5,
    "TXN_OFFSET_COMMIT": 6,
}
_OLDEST = {
    "PRODUCE": 3,
    "FETCH": 4,
    "LIST_OFFSETS": 1,
    "METADATA": 0,
    "CREATE_TOPICS": 2,
    "DELETE_TOPICS": 1,
    "OFFSET_FOR_LEADER_EPOCH": 2,
}


class TraceWriter:
    """Collects the steps of one trace; `connection` is where the next ones go."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steps: list[Step] = []
        self.topics: dict[str, int] = {}
        self.connection = 0
        self._sent = 0

    # Any request

    def add(self, api: str, body: Tree | None = None, **more: Unpack[Step]) -> Step:  # type: ignore[misc]
        low, high = _OLDEST.get(api, 0), _NEWEST.get(api, 0)
        step: Step = {"api": api, "v": self.random.randint(low, high)}
        if body is not None:
            step["body"] = body
        if self.connection:
            step["on"] = self.connection
        step.update(more)  # type: ignore[typeddict-item]
        self.steps.append(step)
        return step

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # Topics

    def topic(self, symbol: str = "$a", partitions: int = 1, **configs: str) -> str:
        settings = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        topic: Tree = {"name": symbol, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        self.add("CREATE_TOPICS", {"topics": [topic], "timeout": 10_000})
        self.topics[symbol] = partitions
        return symbol

    # Produce

    def produce(
        self,
        batches: Sequence[BatchWords],
        topic: str = "$a",
        partition: int = 0,
        **more: Unpack[Step],  # type: ignore[misc]
    ) -> Step:
        return self.produce_all([(topic, [(partition, list(batches))])], **more)

    def produce_all(
        self,
        data: list[tuple[str, list[PartitionWords]]],
        **more: Unpack[Step],  # type: ignore[misc]
    ) -> Step:
        return self.add("PRODUCE", data=data, **more)  # type: ignore[misc]

    def records(self, most: int = 5) -> int:
        return self.random.randint(1, most)

    # Questions

    def list_offsets(self, topic: str, partition: int, *whens: object, epoch: int = -1) -> Step:
        asked = [
            {"partition_index": partition, "timestamp": when, "current_leader_epoch": epoch, "max_num_offsets": 1}
            for when in whens
        ]
        body: Tree = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}], "timeout": 5000}
        return self.add("LIST_OFFSETS", body)

    def ends(self) -> None:
        for topic, partitions in self.topics.items():
            asked = [{"partition_index": index, "timestamp": LATEST} for index in range(partitions)]
            body: Tree = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
            self.add("LIST_OFFSETS", body, v=4)
            self.fetch(topic, self.random.randrange(partitions), 0)

    def fetch(self, topic: str, partition: int, offset: int, **more: object) -> Step:
        of_partition: Tree = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": 1_000_000,
            "current_leader_epoch": -1,
            "log_start_offset": -1,
        }
        of_partition.update({name: more.pop(name) for name in list(more) if name in of_partition})
        topics: list[Tree] = [{"topic": topic, "topic_id": f"#{topic[1:]}", "partitions": [of_partition]}]
        body: Tree = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000, "topics": topics}
        body |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, **more}
        return self.add("FETCH", body)

    def metadata(self, *names: str | None, create: bool = False) -> Step:
        body: Tree = {
            "topics": [{"name": name, "topic_id": None} for name in names],
            "allow_auto_topic_creation": create,
            "include_topic_authorized_operations": self.chance(0.1),
            "include_cluster_authorized_operations": self.chance(0.1),
        }
        return self.add("METADATA", body)

    def init_producer_id(self, **more: object) -> Step:
        body: Tree = {"transactional_id": None, "transaction_timeout": 60_000, **more}
        return self.add("INIT_PRODUCER_ID", body)
