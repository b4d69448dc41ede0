"""Scenes of a few records and one fault each, small enough to try every order of what happens in them."""

import asyncio

from aioproducer.testing import ApiKey, Where
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.stage import Scene, Stage

_PRODUCE = Where(api=ApiKey.PRODUCE)


async def _sends(stage: Stage, count: int, partition: int = 0) -> None:
    for _ in range(count):
        stage.send(partition)
        await asyncio.sleep(0)


async def connection_lost_after_append(stage: Stage) -> None:
    """The connection is lost between the append and its answer, with a second request on its way."""
    stage.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    await stage.together(_sends(stage, 2), _sends(stage, 1))


async def connection_lost_before_append(stage: Stage) -> None:
    """The connection is lost with requests of two partitions on their way."""
    stage.faults.drop_connection(_PRODUCE, times=1)
    await stage.together(_sends(stage, 2, 0), _sends(stage, 2, 1))


async def closed_during_sends(stage: Stage) -> None:
    """One task closes while others send."""
    await stage.together(_sends(stage, 2), stage.close(0.2), _sends(stage, 2))


async def closed_at_once_during_a_request(stage: Stage) -> None:
    """One task closes without waiting while a request is on its way."""
    stage.send()
    await asyncio.sleep(0.0002)
    await stage.together(stage.close(0.0), _sends(stage, 1), stage.close(0.1))


async def cancelled_while_waiting_for_memory(stage: Stage) -> None:
    """The first of two waiters for memory gives up when there is room: the other is served."""
    stage.faults.delay(0.001, _PRODUCE, times=1)
    callers = [asyncio.ensure_future(stage.enqueue_served(partition, size=400)) for partition in (0, 1, 0, 1)]
    asyncio.get_running_loop().call_later(0.003, callers[2].cancel)
    await stage.together(*callers, stage.flush())


async def memory_for_two(stage: Stage) -> None:
    """One answer frees the memory for which two partitions wait."""
    calls = [stage.enqueue_served(partition, size=400) for partition in (0, 1, 1, 0)]
    await stage.together(*calls, stage.flush())


async def leader_moves_with_one_in_flight(stage: Stage) -> None:
    """The leader moves while a request is on its way to the old one."""
    partition = stage.nemesis.model.partitions()[0]
    other = next(node for node in partition.isr if node != partition.leader)
    stage.nemesis.later(0.0004, lambda: partition.move_leader(other, stage.nemesis.now))
    await stage.together(_sends(stage, 2), _sends(stage, 1))


async def leader_is_away(stage: Stage) -> None:
    """There is no leader for a while, and two callers go on sending."""
    partition = stage.nemesis.model.partitions()[0]
    leader = partition.leader
    partition.lose_leader(stage.nemesis.now)
    stage.nemesis.later(0.002, lambda: partition.move_leader(leader, stage.nemesis.now))
    await stage.together(_sends(stage, 2), _sends(stage, 1))


async def flush_beside_sends(stage: Stage) -> None:
    """Two flush while two send, and the first request is refused."""
    stage.faults.error(6, _PRODUCE, times=1)
    await stage.together(_sends(stage, 2), stage.flush(), _sends(stage, 1), stage.flush())


async def flush_gives_up_as_the_answer_comes(stage: Stage) -> None:
    """The time of a flush is over when the answer comes for which it waits; another has patience."""
    stage.send()
    await stage.together(stage.flush(0.003), stage.flush())


async def split_while_another_waits(stage: Stage) -> None:
    """A batch is too large and is split while the next one waits."""
    stage.faults.error(10, _PRODUCE, times=1)
    await stage.together(_sends(stage, 2), _sends(stage, 2), stage.flush())


async def refused_with_another_behind(stage: Stage) -> None:
    """The first of two requests on their way is refused, so the second is out of order."""
    stage.faults.error(7, _PRODUCE, times=1)
    await stage.together(_sends(stage, 2), _sends(stage, 2))


async def broker_forgets_its_producers(stage: Stage) -> None:
    """A broker forgets what it knew of the producer, between two requests."""
    partition = stage.nemesis.model.partitions()[0]
    stage.nemesis.later(0.0007, lambda: stage.nemesis.keeper.forget_producers(partition))
    await stage.together(_sends(stage, 2), _sends(stage, 1))


async def delivery_cancelled_on_the_wire(stage: Stage) -> None:
    """A caller cancels the delivery of a record that is being sent, beside others."""
    stage.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    first, second = stage.send(), stage.send()
    await asyncio.sleep(0.0004)
    assert first is not None
    assert second is not None
    first.cancel()
    await stage.together(_sends(stage, 1), stage.flush())


async def broker_dies_with_one_in_flight(stage: Stage) -> None:
    """A broker dies with a request on its way, and comes back."""
    model, nemesis = stage.nemesis.model, stage.nemesis
    nemesis.later(0.0006, lambda: model.kill(1, nemesis.now))
    nemesis.later(0.0031, lambda: model.restart(1, nemesis.now))
    await stage.together(_sends(stage, 2), _sends(stage, 1, 1))


async def deadline_passes_on_the_wire(stage: Stage) -> None:
    """The answer comes when the record's time is over, beside a younger record."""
    stage.faults.delay(0.006, _PRODUCE, after_append=True, times=1)
    stage.send()
    await asyncio.sleep(0.0075)
    await stage.together(_sends(stage, 2))


async def two_connections_lost_at_once(stage: Stage) -> None:
    """Two partitions of two brokers, the connections to both lost at the same time."""
    stage.faults.drop_connection(_PRODUCE, after_append=True, times=1)
    stage.faults.drop_connection(_PRODUCE, times=1)
    await stage.together(_sends(stage, 2, 0), _sends(stage, 2, 1), stage.producer.partitions_for(TOPIC))


_TIGHT = {"buffer_memory": 1_024, "batch_size": 450}

SCENES = {
    scene.name: scene
    for scene in (
        Scene(act=connection_lost_after_append),
        Scene(act=connection_lost_before_append, partitions=2),
        Scene(act=closed_during_sends, closes=True),
        Scene(act=closed_at_once_during_a_request, closes=True),
        Scene(act=cancelled_while_waiting_for_memory, brokers=2, partitions=2, options=_TIGHT),
        Scene(act=memory_for_two, partitions=2, brokers=2, options=_TIGHT),
        Scene(act=leader_moves_with_one_in_flight, brokers=2),
        Scene(act=leader_is_away),
        Scene(act=flush_beside_sends),
        Scene(act=flush_gives_up_as_the_answer_comes),
        Scene(act=split_while_another_waits, fault="split", options={"linger_ms": 1, "batch_size": 170}),
        Scene(act=refused_with_another_behind),
        Scene(act=broker_forgets_its_producers),
        Scene(act=delivery_cancelled_on_the_wire),
        Scene(act=broker_dies_with_one_in_flight, brokers=2, partitions=2),
        Scene(act=deadline_passes_on_the_wire, options={"delivery_timeout_ms": 10, "request_timeout_ms": 10}),
        Scene(act=two_connections_lost_at_once, brokers=2, partitions=2),
    )
}
