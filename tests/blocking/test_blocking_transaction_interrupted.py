"""Ctrl-C between any two steps of a `transaction()` block: no transaction stays open."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import BlockingProducer
from tests.blocking.test_blocking_interrupted import MANY, interrupted, within_patience
from tests.fakes.cluster_elsewhere import cluster_elsewhere

# In a weak reference's callback Python can only print it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FEW = 97


@pytest.mark.parametrize("stride", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_next_block_has_its_turn_after_an_interrupted_one(stride: int) -> None:
    """Regression: a begin on another thread waited for a transaction without an owner."""

    def block() -> None:
        with producer.transaction():
            producer.enqueue("orders", b"v", partition=0)

    threads = ThreadPoolExecutor(1)
    with cluster_elsewhere() as elsewhere:
        producer = BlockingProducer(elsewhere.bootstrap_servers, transactional_id="b", linger_ms=0).start()
        after = 0
        while interrupted(block, after):
            within_patience(threads, block)
            after += stride
        producer.close()
    threads.shutdown(wait=False, cancel_futures=True)

    assert after > stride
