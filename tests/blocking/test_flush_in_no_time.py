"""`flush(0)`: a look at whether everything has ended."""

import pytest

from aioproducer import BlockingProducer
from aioproducer.testing import ApiKey, Where
from tests.fakes.cluster_elsewhere import ClusterElsewhere

PRODUCE = Where(api=ApiKey.PRODUCE)


def test_flush_of_nothing_takes_no_time(cluster: ClusterElsewhere) -> None:
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.send("orders", b"delivered")
        for _ in range(20):
            producer.flush(0)


def test_flush_whose_turn_does_not_come_says_so(cluster: ClusterElsewhere) -> None:
    stall = cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    with BlockingProducer(cluster.bootstrap_servers, buffer_memory=200_000) as producer:
        for _ in range(40):
            producer.enqueue("orders", bytes(10_000))
        with pytest.raises(TimeoutError, match="still wait for their turn after 0 s"):
            producer.flush(0)
        cluster.do(lambda fake: fake.faults.remove(stall))  # type: ignore[arg-type]
