"""What becomes of an open transaction whose protocol the cluster serves no more. No network."""

from aioproducer._transactions.requests import OffsetsToSend
from aioproducer._transactions.states import TransactionState as State
from tests.fakes.transaction_scene import OFFSETS, READERS, Scene


def test_transaction_that_is_downgraded_ends_as_v1_and_takes_a_new_epoch() -> None:
    """EndTxn 5 would be refused, and nobody answers the next epoch."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.version = 0
    scene.manager.commit()
    scene.manager.flushed()
    request = scene.do("EndTxn")

    assert (request.at_most, scene.is_in(State.INITIALIZING)) == (4, True)
    scene.look_and_renew()
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


def test_offsets_that_wait_while_it_is_downgraded_are_of_a_group_that_the_coordinator_is_told_of() -> None:
    """V2 needs not tell it. Under V1 the offsets are refused otherwise, or belong to no transaction that ever ends."""
    scene = Scene(version=2).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.manager.downgrade()

    scene.do("AddOffsetsToTxn")
    committing = scene.do("TxnOffsetCommit")

    assert committing.at_most == 4


def test_abort_of_what_a_downgraded_cluster_never_took_is_no_broken_promise() -> None:
    """The records that V2 would have added were refused; the coordinator knows of no transaction."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn", 48)
    scene.manager.next_request(scene.now)

    assert scene.is_in(State.INITIALIZING)
