"""A partitioner of the user's own: it puts records anywhere, and may fail or name partitions that do not exist."""

from random import Random

from aioproducer.cluster import Cluster

_FAILS = 0.03
_NAMES_NONE = 0.03


class UsersPartitioner:
    """Chooses by chance."""

    def __init__(self, chance: Random, *, errs: bool) -> None:
        self._chance = chance
        self._errs = errs

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return a partition; the number behind the last now and then, if it errs."""
        del key, key_bytes, value, value_bytes
        count = cluster.partition_count(topic)
        assert count is not None, "the partitioner was asked before the topic was known"
        dice = self._chance.random() if self._errs else 1.0
        if dice < _FAILS:
            raise RuntimeError("the caller's own partitioner fails")
        return count if dice < _FAILS + _NAMES_NONE else self._chance.randrange(count)
