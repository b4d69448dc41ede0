"""Faults, one function each, and `FAULTS`, where a strike finds them by name.

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
    from tests.programs.simulation.nemesis import Nemesis

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


def drop_before_append(nemesis: Nemesis, chance: Random) -> None:
    """The connection closes before a request is served."""
    nemesis.model.faults.drop_connection(_PRODUCE, times=chance.randint(1, 3), skip=chance.randrange(4))


def drop_after_append(nemesis: Nemesis, chance: Random) -> None:
    """The connection closes after the append, before the answer."""
    faults = nemesis.model.faults
    faults.drop_connection(_PRODUCE, after_append=True, times=chance.randint(1, 3), skip=chance.randrange(4))


def half_an_answer(nemesis: Nemesis, chance: Random) -> None:
    """The connection closes in the middle of an answer."""
    nemesis.model.faults.half_frame(Where(api=chance.choice((ApiKey.PRODUCE, None))), skip=chance.randrange(4))


def half_a_request(nemesis: Nemesis, chance: Random) -> None:
    """The connection breaks in the middle of a request."""
    nemesis.node(chance).cut_times += chance.randint(1, 2)


def late_answers(nemesis: Nemesis, chance: Random) -> None:
    """Answers come late, or requests are served late."""
    delay = chance.uniform(0, 2) * nemesis.request_timeout_s
    where = Where(api=chance.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    faults = nemesis.model.faults
    faults.delay(delay, where, after_append=chance.random() < 0.6, times=chance.randint(1, 4), skip=chance.randrange(3))


def uneven_ways(nemesis: Nemesis, chance: Random) -> None:
    """The way to a node is long for a while, so that connections overtake each other."""
    node = nemesis.node(chance)
    node.extra_s = chance.choice((0.01, 0.1, 0.6)) * nemesis.request_timeout_s
    nemesis.fired("slow node")
    nemesis.later(nemesis.a_while(chance), lambda: setattr(node, "extra_s", 0.0))


def ghosts(nemesis: Nemesis, chance: Random) -> None:
    """Requests arrive a second time, later."""
    node = nemesis.node(chance)
    node.ghost_times += chance.randint(1, 4)
    node.ghost_delay_s = nemesis.a_while(chance) + 0.001


def stalled_reads(nemesis: Nemesis, chance: Random) -> None:
    """A node reads nothing for a while."""
    node = nemesis.node(chance)
    nemesis.network.stall(node, chance.randrange(200))
    nemesis.fired("stalled reads")
    nemesis.later(nemesis.a_while(chance), lambda: nemesis.network.clear_up(node))


def slow_reads(nemesis: Nemesis, chance: Random) -> None:
    """Nodes read few bytes at a time, and answer what they have while more of the same connection waits."""
    for node in nemesis.network.nodes.values():
        nemesis.network.trickle(node, chance.randint(1, 30), every_s=0.005)
    nemesis.fired("slow reads")


def fragments(nemesis: Nemesis, chance: Random) -> None:
    """Bytes arrive one by one."""
    nemesis.node(chance).fragment_times += chance.randint(1, 6)


def wrong_leader(nemesis: Nemesis, chance: Random) -> None:
    """A broker says that it does not lead, or that the leader epoch is old."""
    code = chance.choice((6, 6, 74, 75))
    nemesis.model.faults.error(code, nemesis.place(chance), times=chance.randint(1, 4), skip=chance.randrange(3))


def cold_start(nemesis: Nemesis, chance: Random) -> None:
    """Refuse the first batches of a partition: batches sent right behind them must not be appended before them."""
    where = Where(api=ApiKey.PRODUCE, partition=chance.randrange(nemesis.plan.partitions))
    nemesis.model.faults.error(chance.choice((3, 6, 6, 74)), where, times=chance.randint(1, 2))


def lost_answer_then_refusals(nemesis: Nemesis, chance: Random) -> None:
    """Lose an answer after the append, then refuse the partition until all is healed."""
    where, faults = nemesis.place(chance), nemesis.model.faults
    faults.drop_connection(_PRODUCE, after_append=True, times=chance.randint(1, 2))
    nemesis.later(nemesis.a_while(chance), lambda: faults.error(chance.choice((6, 74)), where, times=None))


def stale_metadata(nemesis: Nemesis, chance: Random) -> None:
    """Leaders move, and some brokers do not know it for a while."""
    partitions = nemesis.model.partitions()
    present = {partition: (partition.leader, partition.leader_epoch) for partition in partitions}
    for number in nemesis.plan.nodes:
        if chance.random() < 0.5:
            broker = nemesis.model.brokers[number]
            broker.stale_leaders = present
            nemesis.later(nemesis.a_while(chance), partial(setattr, broker, "stale_leaders", {}))
    for _ in range(chance.choice((1, 2, 3, len(partitions), 2 * len(partitions))) if partitions else 0):
        move_leader(nemesis, chance.choice(partitions), chance)


def move_leader(nemesis: Nemesis, partition: Partition, chance: Random) -> None:
    """Make another live member of the ISR the leader, if there is one."""
    live = set(nemesis.model.live_nodes())
    others = [node for node in partition.isr if node != partition.leader and node in live]
    if others:
        partition.move_leader(chance.choice(others), nemesis.now)
        nemesis.fired("stale metadata")


def no_leader(nemesis: Nemesis, chance: Random) -> None:
    """A partition has no leader for a while."""
    partition = nemesis.partition(chance)
    if partition is None:
        return
    partition.lose_leader(nemesis.now)
    nemesis.fired("no leader")
    nemesis.later(nemesis.a_while(chance), lambda: elect(nemesis, partition))


def elect(nemesis: Nemesis, partition: Partition) -> None:
    """Give a partition without a leader one, if a member of its ISR is alive."""
    live = [node for node in partition.isr if node in nemesis.model.live_nodes()]
    if partition.leader == -1 and live:
        partition.move_leader(live[0], nemesis.now)


def crash(nemesis: Nemesis, chance: Random) -> None:
    """A broker dies, or shuts down in order, and comes back with its log."""
    number = chance.choice(nemesis.plan.nodes)
    if number not in nemesis.model.live_nodes() or len(nemesis.model.live_nodes()) == 1 < nemesis.plan.brokers:
        return
    nemesis.model.kill(number, nemesis.now, clean=chance.random() < 0.5)
    nemesis.fired("crash")
    pause = chance.choice((0.1, 1.0, 3.0)) * chance.random() * nemesis.request_timeout_s
    nemesis.later(pause, lambda: nemesis.model.restart(number, nemesis.now))


def crash_that_loses(nemesis: Nemesis, chance: Random) -> None:
    """A leader dies before its followers have copied the end of its log."""
    partition = nemesis.partition(chance)
    leader = -1 if partition is None else partition.leader
    if partition is None or leader == -1 or len(nemesis.model.live_nodes()) == 1:
        return
    for follower in partition.replicas:
        if follower != leader:
            nemesis.model.hold_replication(follower, nemesis.now, held=True)

    def die() -> None:
        nemesis.model.kill(leader, nemesis.now)
        nemesis.fired("crash with loss")
        for follower in partition.replicas:
            nemesis.model.hold_replication(follower, nemesis.now, held=False)

    nemesis.later(nemesis.a_while(chance) / 4, die)
    nemesis.later(
        nemesis.a_while(chance) + nemesis.request_timeout_s, lambda: nemesis.model.restart(leader, nemesis.now)
    )


def lost_producer_state(nemesis: Nemesis, chance: Random) -> None:
    """A partition forgets its producers; sometimes because its records were deleted."""
    partition = nemesis.partition(chance)
    if partition is None:
        return
    if chance.random() < 0.3:
        partition.log.drop_front(keep_bytes=0)
    nemesis.keeper.forget_producers(partition)
    nemesis.fired("lost producer state")


def busy_coordinator(nemesis: Nemesis, chance: Random) -> None:
    """Producer ids cannot be had for a while."""
    where = Where(api=ApiKey.INIT_PRODUCER_ID)
    nemesis.model.faults.error(chance.choice(PRODUCER_ID_CODES), where, times=chance.randint(1, 6))


def no_producer_ids(nemesis: Nemesis, chance: Random) -> None:
    """Producer ids cannot be had for about as long as records live."""
    where, code = Where(api=ApiKey.INIT_PRODUCER_ID), chance.choice(PRODUCER_ID_CODES)
    rule = nemesis.model.faults.error(code, where, times=None)
    timeout_s = nemesis.plan.number("delivery_timeout_ms") / 1000
    nemesis.later(chance.choice((0.3, 1.2)) * timeout_s, partial(nemesis.model.faults.remove, rule))


def retriable_code(nemesis: Nemesis, chance: Random) -> None:
    """Any retriable error code, before or after the append, also of Metadata."""
    faults, times, skip = nemesis.model.faults, chance.randint(1, 4), chance.randrange(3)
    dice = chance.random()
    if dice < 0.15:
        faults.error(chance.choice(METADATA_CODES), Where(api=ApiKey.METADATA), times=times, skip=skip)
    elif dice < 0.6:
        code = chance.choice(RETRIABLE)
        faults.error(code, nemesis.place(chance), times=2 * times if code == CORRUPT else times, skip=skip)
    else:
        code = chance.choice([code for code in AFTER_APPEND if nemesis.plan.acks != 1 or code not in NEVER_APPENDED])
        faults.error_after_append(code, nemesis.place(chance), times=times, skip=skip)


def final_code(nemesis: Nemesis, chance: Random) -> None:
    """An error code that ends a batch, or names refused records."""
    faults, where, skip = nemesis.model.faults, nemesis.place(chance), chance.randrange(3)
    if chance.random() < 0.2:
        refused: dict[int, str | None] = {chance.randrange(3): "refused" for _ in range(chance.randint(1, 2))}
        faults.record_errors(refused, where, code=chance.choice((32, 87)))
    else:
        faults.error(chance.choice(FINAL), where, times=chance.randint(1, 2), skip=skip)


def any_code(nemesis: Nemesis, chance: Random) -> None:
    """Answer anything with any error code, known or not, except those that end a producer."""
    code = chance.choice((chance.randint(-32_768, 32_767), int(chance.choice(EVERY_CODE)), chance.randint(130, 200)))
    asked = (*ASKED, ApiKey.PRODUCE, ApiKey.METADATA) if nemesis.plan.family.is_transactional else ASKED_BY_ALL
    api, known = chance.choice(asked), ErrorCode.of(code)
    is_end = known is not None and known.fatal and api in {ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID}
    # After an attempt that may have been written, every client must believe that the broker has the batch.
    is_believed = known is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and api is ApiKey.PRODUCE
    if code and not is_end and not is_believed:
        nemesis.model.faults.error(code, Where(api=api), times=chance.randint(1, 2), skip=chance.randrange(2))
        nemesis.fired("codes")


def throttle(nemesis: Nemesis, chance: Random) -> None:
    """A broker asks for a pause, and reads nothing during it."""
    pause_ms = round(chance.choice((0.1, LONGEST_PAUSE)) * chance.random() * nemesis.request_timeout_s * 1000)
    where = Where(api=chance.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    nemesis.model.faults.throttle(pause_ms, where, times=chance.randint(1, 4))


def topic_changes(nemesis: Nemesis, chance: Random) -> None:
    """The topic gets more partitions, or vanishes, or is deleted and made again."""
    topic = nemesis.model.topics.named(TOPIC)
    if topic is None:
        return
    nemesis.fired("topic changes")
    present = len(topic.partitions)
    if chance.random() < 0.4:
        nemesis.model.topics.add_partitions(topic, present + chance.randint(1, 3))
        nemesis.keeper.adopt_all(topic, present)
        return
    nemesis.model.topics.delete(topic, nemesis.now)
    count = max(present + chance.randint(-3, 1), nemesis.plan.partitions)
    nemesis.later(chance.choice((0.0, 1.0)) * nemesis.a_while(chance), lambda: make_topic(nemesis, count))


def make_topic(nemesis: Nemesis, partitions: int) -> None:
    """Make the topic again, unless it is there."""
    live = len(nemesis.model.live_nodes())
    if nemesis.model.topics.named(TOPIC) is None and live >= nemesis.plan.replication:
        topic = nemesis.model.topics.create(TopicRequest(name=TOPIC, partitions=partitions))
        nemesis.keeper.adopt_all(topic)


def another_cluster(nemesis: Nemesis, chance: Random) -> None:
    """Behind the same addresses there is another cluster, in which the topic was made, and is empty."""
    settings = nemesis.model.settings
    nemesis.model.settings = replace(settings, cluster_id=f"cluster-{chance.getrandbits(32):08x}")
    topic = nemesis.model.topics.named(TOPIC)
    if topic is not None:
        nemesis.model.topics.delete(topic, nemesis.now)
    make_topic(nemesis, nemesis.plan.partitions)
    for node in nemesis.network.nodes.values():
        nemesis.network.cut_all(node, "another cluster")
    nemesis.fired("another cluster")


def cluster_replaced(nemesis: Nemesis, chance: Random) -> None:
    """All brokers have other addresses from now on."""
    del chance
    nemesis.network.move_all()
    nemesis.fired("cluster moves")


def another_release(nemesis: Nemesis, chance: Random) -> None:
    """Every broker is replaced by one of another release, which knows other versions."""
    nemesis.speak(PROFILES[chance.choice(tuple(PROFILES))].versions)
    nemesis.fired("releases")
    nemesis.later(nemesis.a_while(chance), nemesis.speak_as_planned)


def no_names(nemesis: Nemesis, chance: Random) -> None:
    """The name server knows nothing for a while, or says nothing."""
    names = nemesis.network.names
    names.is_silent = chance.random() < 0.5
    names.is_failing = not names.is_silent
    nemesis.fired("names")
    nemesis.later(nemesis.a_while(chance), names.clear_up)


def unknown_header_tags(nemesis: Nemesis, chance: Random) -> None:
    """Some brokers put tagged fields into response headers that no client knows, and every client can pass over."""
    for broker in nemesis.model.brokers.values():
        if chance.random() < 0.5:
            broker.header_tags = bytes((1, chance.randrange(100), 3)) + chance.randbytes(3)
    nemesis.fired("tags")


def outage(nemesis: Nemesis, chance: Random) -> None:
    """All brokers, or some, cannot be reached for longer than records live: silent, or refusing."""
    nodes = list(nemesis.network.nodes.values())
    away = nodes if chance.random() < 0.6 else chance.sample(nodes, max(1, len(nodes) // 2))
    is_silent = chance.random() < 0.5
    for node in away:
        node.is_dark, node.is_refusing = is_silent, not is_silent
    if not is_silent:
        for node in away:
            nemesis.network.cut_all(node, "outage")
    nemesis.fired("outage")
    timeout_s = nemesis.plan.number("delivery_timeout_ms") / 1000
    for node in away:
        nemesis.later(chance.choice((0.3, 1.2)) * timeout_s, partial(nemesis.network.clear_up, node))


def too_large(nemesis: Nemesis, chance: Random) -> None:
    """A broker finds batches too large that it would have taken before."""
    code = chance.choice((10, 10, 18))
    nemesis.model.faults.error(code, nemesis.place(chance), times=chance.randint(1, 4), skip=chance.randrange(3))


def wall_clock_jumps(nemesis: Nemesis, chance: Random) -> None:
    """The wall clock jumps by up to an hour."""
    nemesis.wall_clock_shift_ms = chance.randint(-3_600_000, 3_600_000)
    nemesis.fired("clock jumps")


FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {
    **COORDINATOR_FAULTS,
    **HOSTILE_FAULTS,
    **SECURITY_FAULTS,
    "drop before append": drop_before_append,
    "drop after append": drop_after_append,
    "half response": half_an_answer,
    "half request": half_a_request,
    "late responses": late_answers,
    "slow node": uneven_ways,
    "repeated requests": ghosts,
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
