"""A partitioner of the user's own: it puts records anywhere, fails now and then, and names partitions that are not."""

from random import Random

from aioproducer.core.cluster import Cluster

_FAILS = 0.03
_NAMES_NONE = 0.03


class UsersPartitioner:
    """Chooses by chance.

    Args:
        chance: the run's.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return a partition, or the number behind the last.

        Raises:
            RuntimeError: now and then.
        """
        del key, key_bytes, value, value_bytes
        count = cluster.partition_count(topic)
        assert count is not None, "the partitioner was asked before the topic was known"
        dice = self._chance.random()
        if dice < _FAILS:
            raise RuntimeError("the caller's own partitioner fails")
        return count if dice < _FAILS + _NAMES_NONE else self._chance.randrange(count)
