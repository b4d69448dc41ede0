"""Faults, one function each, and `FAULTS`, where the fault injector finds them by name.

Faults of coordinators are in `coordinator_faults.py`, those of security and hostile brokers in `security_faults.py`;
"user faults" are made by the callers, in `caller.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.topics import TopicRequest
from aioproducer.testing.fake_broker.version_profiles import PROFILES
from tests.programs.simulation.coordinator_faults import ASKED, COORDINATOR_FAULTS
from tests.programs.simulation.plan import LONGEST_PAUSE
from tests.programs.simulation.security_faults import HOSTILE_FAULTS, SECURITY_FAULTS

if TYPE_CHECKING:
    from tests.programs.simulation.fault_injector import FaultInjector

TOPIC = "orders"
_PRODUCE = Where(api=ApiKey.PRODUCE)
RETRIABLE = (-1, 2, 2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 56, 74, 75, 100, 103)
"""Retriable codes; the one that is given up soon comes often, and repeatedly."""

CORRUPT = int(ErrorCode.CORRUPT_MESSAGE)
AFTER_APPEND = (-1, 3, 6, 7, 13, 20, 46, 56)
NEVER_APPENDED = tuple(code for code in AFTER_APPEND if (row := ErrorCode.of(code)) is not None and row.not_written)
"""Codes that a leader answers before it appends, or never, with acks=1: it waits for no replica."""

FINAL = (10, 17, 18, 21, 29, 32, 35, 42, 43, 44, 45, 47, 59, 76, 87, 999)
"""Codes that end a batch, or its identity; 31, 53 and 90 end the producer."""

EVERY_CODE = tuple(ErrorCode)
ASKED_BY_ALL = (ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS)

METADATA_CODES = (3, 5, 7, 35, -1)
PRODUCER_ID_CODES = (7, 14, 15, 16, 51, -1)


def drop_before_append(injector: FaultInjector, rng: Random) -> None:
    """The connection closes before a request is served."""
    injector.model.faults.drop_connection(_PRODUCE, times=rng.randint(1, 3), skip=rng.randrange(4))


def drop_after_append(injector: FaultInjector, rng: Random) -> None:
    """The connection closes after the append, before the answer."""
    faults = injector.model.faults
    faults.drop_connection(_PRODUCE, after_append=True, times=rng.randint(1, 3), skip=rng.randrange(4))


def half_an_answer(injector: FaultInjector, rng: Random) -> None:
    """The connection closes in the middle of an answer."""
    injector.model.faults.half_frame(Where(api=rng.choice((ApiKey.PRODUCE, None))), skip=rng.randrange(4))


def half_a_request(injector: FaultInjector, rng: Random) -> None:
    """The connection breaks in the middle of a request."""
    injector.node(rng).cut_times += rng.randint(1, 2)


def late_answers(injector: FaultInjector, rng: Random) -> None:
    """Answers come late, or requests are served late."""
    delay = rng.uniform(0, 2) * injector.request_timeout_s
    where = Where(api=rng.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    faults = injector.model.faults
    faults.delay(delay, where, after_append=rng.random() < 0.6, times=rng.randint(1, 4), skip=rng.randrange(3))


def uneven_ways(injector: FaultInjector, rng: Random) -> None:
    """The way to a node is long for a while, so that connections overtake each other."""
    node = injector.node(rng)
    node.extra_s = rng.choice((0.01, 0.1, 0.6)) * injector.request_timeout_s
    injector.fired("slow node")
    injector.later(injector.a_while(rng), lambda: setattr(node, "extra_s", 0.0))


def repeated_requests(injector: FaultInjector, rng: Random) -> None:
    """Requests arrive a second time, later."""
    node = injector.node(rng)
    node.repeat_times += rng.randint(1, 4)
    node.repeat_delay_s = injector.a_while(rng) + 0.001


def stalled_reads(injector: FaultInjector, rng: Random) -> None:
    """A node reads nothing for a while."""
    node = injector.node(rng)
    injector.network.stall(node, rng.randrange(200))
    injector.fired("stalled reads")
    injector.later(injector.a_while(rng), lambda: injector.network.clear_up(node))


def slow_reads(injector: FaultInjector, rng: Random) -> None:
    """Nodes read few bytes at a time, and answer what they have while more of the same connection waits."""
    for node in injector.network.nodes.values():
        injector.network.trickle(node, rng.randint(1, 30), every_s=0.005)
    injector.fired("slow reads")


def fragments(injector: FaultInjector, rng: Random) -> None:
    """Bytes arrive one by one."""
    injector.node(rng).fragment_times += rng.randint(1, 6)


def wrong_leader(injector: FaultInjector, rng: Random) -> None:
    """A broker says that it does not lead, or that the leader epoch is old."""
    code = rng.choice((6, 6, 74, 75))
    injector.model.faults.error(code, injector.place(rng), times=rng.randint(1, 4), skip=rng.randrange(3))


def cold_start(injector: FaultInjector, rng: Random) -> None:
    """Refuse the first batches of a partition: batches sent right behind them must not be appended before them."""
    where = Where(api=ApiKey.PRODUCE, partition=rng.randrange(injector.plan.partitions))
    injector.model.faults.error(rng.choice((3, 6, 6, 74)), where, times=rng.randint(1, 2))


def lost_answer_then_refusals(injector: FaultInjector, rng: Random) -> None:
    """Lose an answer after the append, then refuse the partition until all is healed."""
    where, faults = injector.place(rng), injector.model.faults
    faults.drop_connection(_PRODUCE, after_append=True, times=rng.randint(1, 2))
    injector.later(injector.a_while(rng), lambda: faults.error(rng.choice((6, 74)), where, times=None))


def stale_metadata(injector: FaultInjector, rng: Random) -> None:
    """Leaders move, and some brokers do not know it for a while."""
    partitions = injector.model.partitions()
    present = {partition: (partition.leader, partition.leader_epoch) for partition in partitions}
    for number in injector.plan.nodes:
        if rng.random() < 0.5:
            broker = injector.model.brokers[number]
            broker.stale_leaders = present
            injector.later(injector.a_while(rng), partial(setattr, broker, "stale_leaders", {}))
    for _ in range(rng.choice((1, 2, 3, len(partitions), 2 * len(partitions))) if partitions else 0):
        move_leader(injector, rng.choice(partitions), rng)


def move_leader(injector: FaultInjector, partition: Partition, rng: Random) -> None:
    """Make another live member of the ISR the leader, if there is one."""
    live = set(injector.model.live_nodes())
    others = [node for node in partition.isr if node != partition.leader and node in live]
    if others:
        partition.move_leader(rng.choice(others), injector.now)
        injector.fired("stale metadata")


def no_leader(injector: FaultInjector, rng: Random) -> None:
    """A partition has no leader for a while."""
    partition = injector.partition(rng)
    if partition is None:
        return
    partition.lose_leader(injector.now)
    injector.fired("no leader")
    injector.later(injector.a_while(rng), lambda: elect(injector, partition))


def elect(injector: FaultInjector, partition: Partition) -> None:
    """Give a partition without a leader one, if a member of its ISR is alive."""
    live = [node for node in partition.isr if node in injector.model.live_nodes()]
    if partition.leader == -1 and live:
        partition.move_leader(live[0], injector.now)


def crash(injector: FaultInjector, rng: Random) -> None:
    """A broker dies, or shuts down in order, and comes back with its log."""
    number = rng.choice(injector.plan.nodes)
    if number not in injector.model.live_nodes() or len(injector.model.live_nodes()) == 1 < injector.plan.brokers:
        return
    injector.model.kill(number, injector.now, clean=rng.random() < 0.5)
    injector.fired("crash")
    pause = rng.choice((0.1, 1.0, 3.0)) * rng.random() * injector.request_timeout_s
    injector.later(pause, lambda: injector.model.restart(number, injector.now))


def crash_that_loses(injector: FaultInjector, rng: Random) -> None:
    """A leader dies before its followers have copied the end of its log."""
    partition = injector.partition(rng)
    leader = -1 if partition is None else partition.leader
    if partition is None or leader == -1 or len(injector.model.live_nodes()) == 1:
        return
    for follower in partition.replicas:
        if follower != leader:
            injector.model.hold_replication(follower, injector.now, held=True)

    def die() -> None:
        injector.model.kill(leader, injector.now)
        injector.fired("crash with loss")
        for follower in partition.replicas:
            injector.model.hold_replication(follower, injector.now, held=False)

    injector.later(injector.a_while(rng) / 4, die)
    injector.later(
        injector.a_while(rng) + injector.request_timeout_s, lambda: injector.model.restart(leader, injector.now)
    )


def lost_producer_state(injector: FaultInjector, rng: Random) -> None:
    """A partition forgets its producers; sometimes because its records were deleted."""
    partition = injector.partition(rng)
    if partition is None:
        return
    if rng.random() < 0.3:
        partition.log.drop_front(keep_bytes=0)
    injector.keeper.forget_producers(partition)
    injector.fired("lost producer state")


def busy_coordinator(injector: FaultInjector, rng: Random) -> None:
    """Producer ids cannot be had for a while."""
    where = Where(api=ApiKey.INIT_PRODUCER_ID)
    injector.model.faults.error(rng.choice(PRODUCER_ID_CODES), where, times=rng.randint(1, 6))


def no_producer_ids(injector: FaultInjector, rng: Random) -> None:
    """Producer ids cannot be had for about as long as records live."""
    where, code = Where(api=ApiKey.INIT_PRODUCER_ID), rng.choice(PRODUCER_ID_CODES)
    rule = injector.model.faults.error(code, where, times=None)
    timeout_s = injector.plan.number("delivery_timeout_ms") / 1000
    injector.later(rng.choice((0.3, 1.2)) * timeout_s, partial(injector.model.faults.remove, rule))


def retriable_code(injector: FaultInjector, rng: Random) -> None:
    """Any retriable error code, before or after the append, also of Metadata."""
    faults, times, skip = injector.model.faults, rng.randint(1, 4), rng.randrange(3)
    dice = rng.random()
    if dice < 0.15:
        faults.error(rng.choice(METADATA_CODES), Where(api=ApiKey.METADATA), times=times, skip=skip)
    elif dice < 0.6:
        code = rng.choice(RETRIABLE)
        faults.error(code, injector.place(rng), times=2 * times if code == CORRUPT else times, skip=skip)
    else:
        code = rng.choice([code for code in AFTER_APPEND if injector.plan.acks != 1 or code not in NEVER_APPENDED])
        faults.error_after_append(code, injector.place(rng), times=times, skip=skip)


def final_code(injector: FaultInjector, rng: Random) -> None:
    """An error code that ends a batch, or names refused records."""
    faults, where, skip = injector.model.faults, injector.place(rng), rng.randrange(3)
    if rng.random() < 0.2:
        refused: dict[int, str | None] = {rng.randrange(3): "refused" for _ in range(rng.randint(1, 2))}
        faults.record_errors(refused, where, code=rng.choice((32, 87)))
    else:
        faults.error(rng.choice(FINAL), where, times=rng.randint(1, 2), skip=skip)


def any_code(injector: FaultInjector, rng: Random) -> None:
    """Answer anything with any error code, known or not, except those that end a producer."""
    code = rng.choice((rng.randint(-32_768, 32_767), int(rng.choice(EVERY_CODE)), rng.randint(130, 200)))
    asked = (*ASKED, ApiKey.PRODUCE, ApiKey.METADATA) if injector.plan.family.is_transactional else ASKED_BY_ALL
    api, known = rng.choice(asked), ErrorCode.of(code)
    is_end = known is not None and known.fatal and api in {ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID}
    # After an attempt that may have been written, every client must believe that the broker has the batch.
    is_believed = known is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and api is ApiKey.PRODUCE
    if code and not is_end and not is_believed:
        injector.model.faults.error(code, Where(api=api), times=rng.randint(1, 2), skip=rng.randrange(2))
        injector.fired("codes")


def throttle(injector: FaultInjector, rng: Random) -> None:
    """A broker asks for a pause, and reads nothing during it."""
    pause_ms = round(rng.choice((0.1, LONGEST_PAUSE)) * rng.random() * injector.request_timeout_s * 1000)
    where = Where(api=rng.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    injector.model.faults.throttle(pause_ms, where, times=rng.randint(1, 4))


def topic_changes(injector: FaultInjector, rng: Random) -> None:
    """The topic gets more partitions, or vanishes, or is deleted and made again."""
    topic = injector.model.topics.named(TOPIC)
    if topic is None:
        return
    injector.fired("topic changes")
    present = len(topic.partitions)
    if rng.random() < 0.4:
        injector.model.topics.add_partitions(topic, present + rng.randint(1, 3))
        injector.keeper.adopt_all(topic, present)
        return
    injector.model.topics.delete(topic, injector.now)
    count = max(present + rng.randint(-3, 1), injector.plan.partitions)
    injector.later(rng.choice((0.0, 1.0)) * injector.a_while(rng), lambda: make_topic(injector, count))


def make_topic(injector: FaultInjector, partitions: int) -> None:
    """Make the topic again, unless it is there."""
    live = len(injector.model.live_nodes())
    if injector.model.topics.named(TOPIC) is None and live >= injector.plan.replication:
        topic = injector.model.topics.create(TopicRequest(name=TOPIC, partitions=partitions))
        injector.keeper.adopt_all(topic)


def another_cluster(injector: FaultInjector, rng: Random) -> None:
    """Behind the same addresses there is another cluster, in which the topic was made, and is empty."""
    settings = injector.model.settings
    injector.model.settings = replace(settings, cluster_id=f"cluster-{rng.getrandbits(32):08x}")
    topic = injector.model.topics.named(TOPIC)
    if topic is not None:
        injector.model.topics.delete(topic, injector.now)
    make_topic(injector, injector.plan.partitions)
    for node in injector.network.nodes.values():
        injector.network.cut_all(node, "another cluster")
    injector.fired("another cluster")


def cluster_replaced(injector: FaultInjector, rng: Random) -> None:
    """All brokers have other addresses from now on."""
    del rng
    injector.network.move_all()
    injector.fired("cluster moves")


def another_release(injector: FaultInjector, rng: Random) -> None:
    """Every broker is replaced by one of another release, which knows other versions."""
    injector.speak(PROFILES[rng.choice(tuple(PROFILES))].versions)
    injector.fired("releases")
    injector.later(injector.a_while(rng), injector.speak_as_planned)


def no_names(injector: FaultInjector, rng: Random) -> None:
    """The name server knows nothing for a while, or says nothing."""
    names = injector.network.names
    names.is_silent = rng.random() < 0.5
    names.is_failing = not names.is_silent
    injector.fired("names")
    injector.later(injector.a_while(rng), names.clear_up)


def unknown_header_tags(injector: FaultInjector, rng: Random) -> None:
    """Some brokers put tagged fields into response headers that no client knows, and every client can pass over."""
    for broker in injector.model.brokers.values():
        if rng.random() < 0.5:
            broker.header_tags = bytes((1, rng.randrange(100), 3)) + rng.randbytes(3)
    injector.fired("tags")


def outage(injector: FaultInjector, rng: Random) -> None:
    """All brokers, or some, cannot be reached for longer than records live: silent, or refusing."""
    nodes = list(injector.network.nodes.values())
    away = nodes if rng.random() < 0.6 else rng.sample(nodes, max(1, len(nodes) // 2))
    is_silent = rng.random() < 0.5
    for node in away:
        node.is_dark, node.is_refusing = is_silent, not is_silent
    if not is_silent:
        for node in away:
            injector.network.cut_all(node, "outage")
    injector.fired("outage")
    timeout_s = injector.plan.number("delivery_timeout_ms") / 1000
    for node in away:
        injector.later(rng.choice((0.3, 1.2)) * timeout_s, partial(injector.network.clear_up, node))


def too_large(injector: FaultInjector, rng: Random) -> None:
    """A broker finds batches too large that it would have taken before."""
    code = rng.choice((10, 10, 18))
    injector.model.faults.error(code, injector.place(rng), times=rng.randint(1, 4), skip=rng.randrange(3))


def wall_clock_jumps(injector: FaultInjector, rng: Random) -> None:
    """The wall clock jumps by up to an hour."""
    injector.wall_clock_shift_ms = rng.randint(-3_600_000, 3_600_000)
    injector.fired("clock jumps")


FAULTS: Mapping[str, Callable[[FaultInjector, Random], None]] = {
    **COORDINATOR_FAULTS,
    **HOSTILE_FAULTS,
    **SECURITY_FAULTS,
    "drop before append": drop_before_append,
    "drop after append": drop_after_append,
    "half response": half_an_answer,
    "half request": half_a_request,
    "late responses": late_answers,
    "slow node": uneven_ways,
    "repeated requests": repeated_requests,
    "stalled reads": stalled_reads,
    "slow reads": slow_reads,
    "fragments": fragments,
    "wrong leader": wrong_leader,
    "stale metadata": stale_metadata,
    "no leader": no_leader,
    "crash": crash,
    "crash with loss": crash_that_loses,
    "lost producer state": lost_producer_state,
    "no producer id": busy_coordinator,
    "retriable code": retriable_code,
    "final code": final_code,
    "throttle": throttle,
    "topic changes": topic_changes,
    "cluster moves": cluster_replaced,
    "clock jumps": wall_clock_jumps,
    "another cluster": another_cluster,
    "codes": any_code,
    "cold": cold_start,
    "names": no_names,
    "no ids": no_producer_ids,
    "outage": outage,
    "refusals": lost_answer_then_refusals,
    "releases": another_release,
    "split": too_large,
    "tags": unknown_header_tags,
}
