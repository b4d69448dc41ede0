"""When the linger of one batch is over, the others for its node are sent with it, and no others."""

from tests.fakes.core_parts import CoreParts, values

LEADERS = (1, 2, 1, 2, 1)


def offered(core: CoreParts) -> list[int]:
    return [number for number in range(len(LEADERS)) if core.queue(number).is_offered]


def opened_in_turn(**settings: float) -> CoreParts:
    """A batch in a partition each millisecond; the linger of the first is over a millisecond later."""
    core = CoreParts(leaders=LEADERS, **{"linger_s": 0.005} | settings)
    for number in range(len(LEADERS)):
        core.send(partition=number)
        core.pass_time(0.00099)
    return core


def test_batches_of_a_node_go_when_the_first_linger_ends() -> None:
    """One request carries all of them; no request of another node is hurried."""
    core = opened_in_turn()

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]


def test_node_gets_one_request_per_linger() -> None:
    """Each batch is opened behind the last request, so none of their lingers ends early."""
    core = CoreParts(leaders=[1] * 50, linger_s=0.0505)
    requests = 0
    for turn in range(1010):
        core.send(partition=turn * 7 % 50)
        core.pass_time(0.001)
        drained = core.drain()
        requests += bool(drained)
        for batch in drained:
            core.acknowledge(batch)

    assert requests == 1010 // 51


def test_batch_that_goes_along_takes_records_until_it_is_drained() -> None:
    core = opened_in_turn()
    core.pass_time(0.0001)
    core.send(partition=2)

    assert values(core.drain()) == [1, 2, 1]


def test_awaited_or_full_batch_takes_no_other_along() -> None:
    core = opened_in_turn(batch_size=1024)
    core.send(bytes(2000), partition=0)
    core.send(partition=1).add_done_callback(lambda _: None)

    assert offered(core) == [0, 1]


def test_linger_of_a_ready_batch_takes_no_other_along() -> None:
    """The ready batch was awaited, and stays because no broker takes it: it does not go now either."""
    core = opened_in_turn()
    core.send(partition=0).add_done_callback(lambda _: None)

    core.pass_time(0.0001)

    assert offered(core) == [0]


def test_batch_that_was_closed_is_not_taken_along() -> None:
    """The next batch of its partition waits for the node's next linger, too."""
    core = opened_in_turn()
    core.open_batches.close(core.queue(2))
    [closed] = core.drain()

    core.pass_time(0.0001)

    assert (closed.queue, offered(core)) == (core.queue(2), [0, 4])


def test_linger_cut_by_age_takes_others_along() -> None:
    """A tenth of `delivery.timeout.ms` is the longest linger that is kept."""
    core = opened_in_turn(linger_s=60, delivery_timeout_s=0.05)

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]


def test_moved_partition_goes_with_its_former_leaders_batches() -> None:
    core = opened_in_turn()
    core.lead((1, 2, 2, 2, 1), epoch=1)

    core.pass_time(0.0001)

    assert offered(core) == [0, 2, 4]
    assert (len(core.drain(1)), len(core.drain(2))) == (2, 1)
