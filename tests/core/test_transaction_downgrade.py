"""What becomes of an open transaction whose protocol the cluster serves no more. No network."""

from aioproducer.core.transaction_states import TransactionState as State
from tests.fakes.transaction_scene import Scene


def test_transaction_that_is_downgraded_ends_as_v1_and_takes_a_new_epoch() -> None:
    """EndTxn 5 would be refused, and nobody answers the next epoch."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.version = 0
    scene.manager.commit()
    scene.manager.flushed()
    request = scene.do("EndTxn")

    assert (request.at_most, scene.is_in(State.INITIALIZING)) == (4, True)
    scene.do("InitProducerId")
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


def test_abort_of_what_a_downgraded_cluster_never_took_is_no_broken_promise() -> None:
    """The records that V2 would have added were refused; the coordinator knows of no transaction."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn", 48)
    scene.manager.next_request(scene.now)

    assert scene.is_in(State.INITIALIZING)
