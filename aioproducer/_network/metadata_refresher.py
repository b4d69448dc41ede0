"""Keeps what is known about the cluster up to date, and asks for no more than is needed.

A refresh happens when someone asks for it (an unknown topic, a moved leader, a lost connection), when an answer
left a topic without what is needed to send to it, and when the last one is `metadata_max_age_ms` old, or every second
while a node is tried in vain. There is never more than one under way. Requests that come meanwhile are one further
refresh.

A topic that is new here is asked for alone; everything else asks for all topics in use. A topic not used for
`metadata_max_idle_ms` is forgotten. Between two refreshes lies `retry_backoff_ms`, growing while one is wanted after
the other and they fail, bring nothing new, or leave a topic in error: a topic made on first use is answered with
"unknown" first, and is there a moment later. Unless the last one has failed, a topic that is new ends the pause.

Source: Metadata, ProducerMetadata and NetworkClient.DefaultMetadataUpdater in Apache Kafka; KIP-526, KIP-580, KIP-951,
KIP-1102.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from aioproducer._network.cluster_updates import merge, with_leader_hints, without_topics
from aioproducer._network.context import EventLog
from aioproducer._network.network_client import NetworkClient
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import METADATA, decode_metadata_response, encode_metadata_request
from aioproducer._timing.retry_backoff import ExponentialBackoff, RandomSource
from aioproducer.cluster import Cluster, MetadataResponse, Node, PartitionView, TopicView
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
    UnsupportedVersionError,
)
from aioproducer.records import TopicPartition


class MetadataSettings(NamedTuple):
    """The options that metadata needs, with Kafka's defaults; milliseconds."""

    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    """Without a good answer for this long, begin anew from the bootstrap addresses."""
    allow_auto_topic_creation: bool = True
    """Brokers have their own switch: auto.create.topics.enable."""


WHILE_AWAY_S: Final = 1.0
"""How often metadata is refreshed while a node is tried in vain: an attempt may hang for long."""

_HOPEFUL: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Of a topic, though not elsewhere: brokers with ZooKeeper say so while they cannot make it, too few being up."""
_FOR_GOOD: Final = (AuthenticationError, UnsupportedVersionError)


class MetadataRefresher:
    """Owns the `Cluster`; `run` is its task.

    Args:
        client: asks brokers, and is told of the nodes that answers name.
        settings: see there.
        random: shared; spreads backoffs.
        log: for events.
    """

    def __init__(
        self, client: NetworkClient, settings: MetadataSettings, *, random: RandomSource, log: EventLog
    ) -> None:
        self.cluster = Cluster()
        """What is known now; replaced, never changed."""
        self.refreshes = 0
        """Answers merged."""
        self.last_error: KafkaError | None = None
        """Of the last refresh, None when it succeeded."""
        self._client = client
        self._settings = settings
        self._log = log
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random=random)
        self._topics: dict[str, float] = {}  # in use: when last used
        self._urgent: set[str] = set()  # to be asked for alone
        self._suspected: set[str] = set()  # a produce was refused: lower epochs may be true (see Cluster)
        self._is_full_wanted = True
        self._is_to_look = asyncio.Event()  # whether a refresh is wanted, or a node tried in vain
        self._is_new_topic = asyncio.Event()  # ends the pause between two refreshes
        self._attempts = 0  # in a row that failed or did not help; a rest, in which nobody wants one, ends the row
        self._asking_since = math.inf  # the first attempt after the last good answer
        self._last_full = 0.0
        self._listeners: list[Callable[[Cluster], None]] = []
        self._first_answers: list[asyncio.Future[None]] = []
        # Others may lead its partitions by now. Once for each failure: what waits for that node does not ask again.
        client.on_node_failed = partial(self.request_update, "node_failed")
        client.on_node_tried_again = self._is_to_look.set

    # What the producer and the sender ask for

    def on_update(self, listener: Callable[[Cluster], None]) -> None:
        """Call `listener` with every new cluster, on the loop, from now on."""
        self._listeners.append(listener)

    def add_topic(self, topic: str, now: float) -> None:
        """Note that a topic is in use; one that is new is asked for at once, one in error once more.

        What nobody uses for `metadata_max_idle_ms` is forgotten.
        """
        if topic not in self._topics or self.topic_error(topic):
            self._urgent.add(topic)
            self._is_to_look.set()
        if topic not in self._topics:
            self._is_new_topic.set()
        self._topics[topic] = now

    def topic_error(self, topic: str) -> int:
        """Return the error code of the last answer about a topic; 0 = none, or no answer yet."""
        view = self.cluster.topics.get(topic)
        return view.error_code if view is not None else 0

    def throttle_left_s(self) -> float:
        """Return for how many seconds no broker is asked, because each has said so (KIP-219)."""
        return self._client.throttle_left_s()

    def topic_refusal(self, topic: str) -> ErrorCode | None:
        """Return the code with which brokers refuse to describe a topic, whoever waits; None while there is hope."""
        return _refusal_of_topic(self.topic_error(topic))

    def request_update(self, reason: str, *, topic: str | None = None) -> None:
        """Ask for a refresh of all topics in use, soon.

        Args:
            reason: for the log; an event-like word.
            topic: to which a produce was refused with "unknown" or "not leader", if that is why.
        """
        if topic is not None:
            self._suspected.add(topic)
        if not self._is_full_wanted:
            self._log.debug("metadata_update_requested", reason=reason)
        self._is_full_wanted = True
        self._is_to_look.set()

    def apply_leader_hints(
        self,
        hints: Mapping[TopicPartition, PartitionView],
        *,
        topic_ids: Mapping[str, bytes],
        endpoints: Iterable[Node] = (),
    ) -> None:
        """Take the new leaders that a produce answer names (KIP-951).

        Args:
            hints: who leads, by partition.
            topic_ids: of their topics when the produce was sent.
            endpoints: nodes that metadata may not have named yet.
        """
        cluster = with_leader_hints(self.cluster, hints, topic_ids=topic_ids, endpoints=endpoints)
        if cluster is not self.cluster:
            self._publish(cluster)

    async def first_answer(self, timeout_s: float) -> None:
        """Wait until any broker has answered; for the start of a producer.

        Raises:
            MetadataTimeoutError: nobody did in time; says why, as far as is known.
            UnsupportedVersionError: the brokers cannot be spoken to.
            AuthenticationError: the brokers refuse the credentials.
        """
        if self.refreshes:
            return
        answered = asyncio.get_running_loop().create_future()
        self._first_answers.append(answered)
        try:
            async with asyncio.timeout(timeout_s):
                await answered
        except TimeoutError as error:
            said = self.last_error
            text = f"no broker has answered within {timeout_s:g} s{'' if said is None else f': {said}'}"
            raise MetadataTimeoutError(text, last_broker_error=said) from (said or error)

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail those who wait for the first answer: it will never come."""
        self._end_first_answers(error)

    # The task

    async def run(self) -> None:
        """Refresh for ever. Ends only by being cancelled."""
        self._last_full = asyncio.get_running_loop().time()
        while True:
            await self._wait_until_wanted()
            try:
                await self._refresh()
            except KafkaError as error:
                self._note_failure(error)
            await self._pause()

    def __repr__(self) -> str:
        """Show what is known."""
        return f"<MetadataRefresher {len(self.cluster.nodes)} nodes, {len(self._topics)} topics in use>"

    async def _wait_until_wanted(self) -> None:
        clock, client = asyncio.get_running_loop().time, self._client
        if not self._is_wanted():
            self._attempts = 0  # what comes next, be it the age, is no repetition
        while not self._is_wanted():
            self._is_to_look.clear()
            left_s = self._last_full + self._settings.metadata_max_age_ms / 1000 - clock()
            wait_s = min(left_s, WHILE_AWAY_S) if client.tries_in_vain() else left_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._is_to_look.wait()
            except TimeoutError:
                if wait_s == left_s or client.tries_in_vain():
                    self._is_full_wanted = True

    def _is_wanted(self) -> bool:
        return self._is_full_wanted or bool(self._urgent)

    async def _pause(self) -> None:
        # `retry_backoff_ms` also for a topic that was just created: asking sooner made no topic usable sooner (Kafka
        # 4.3.1).
        delay_s = self._backoff.delay_s(max(0, self._attempts - 1))
        if self.last_error is not None:
            await asyncio.sleep(delay_s)
            return
        try:
            async with asyncio.timeout(delay_s):
                await self._is_new_topic.wait()
        except TimeoutError:
            return

    async def _refresh(self) -> None:
        now = asyncio.get_running_loop().time()
        self._asking_since = min(self._asking_since, now)
        self._forget_idle(now)
        topics = self._topics_to_ask()
        suspected = frozenset(self._suspected)
        answer = await self._client.request(
            METADATA,
            lambda version: encode_metadata_request(
                version, topics, allow_auto_topic_creation=self._settings.allow_auto_topic_creation
            ),
            lambda reply: decode_metadata_response(reply.version, reply.payload, from_node=reply.node_id),
        )
        if code := _refusal(answer):
            raise self._refused(code)
        if not any(node.is_valid for node in answer.nodes):
            raise BrokerError("a broker answered Metadata without naming a broker to connect to", retriable=True)
        self._suspected -= suspected
        self._merge(answer, topics, suspected)

    def _topics_to_ask(self) -> list[str]:
        # What is asked for while the request is under way is wanted anew.
        self._is_new_topic.clear()
        urgent, self._urgent = self._urgent & self._topics.keys(), set()
        if not self._is_full_wanted:
            return sorted(urgent)
        self._is_full_wanted = False
        self._last_full = asyncio.get_running_loop().time()
        return sorted(self._topics)

    def _forget_idle(self, now: float) -> None:
        oldest = now - self._settings.metadata_max_idle_ms / 1000
        idle = {topic for topic, used_at in self._topics.items() if used_at < oldest}
        for topic in idle:
            del self._topics[topic]
        self.cluster = without_topics(self.cluster, idle)

    def _merge(self, answer: MetadataResponse, asked: list[str], suspected: frozenset[str]) -> None:
        now = asyncio.get_running_loop().time()
        views = tuple(view for view in answer.topics if view.name in self._topics)
        self.last_error = None
        self.refreshes += 1
        self._asking_since = math.inf
        before, cluster = self.cluster, merge(self.cluster, answer._replace(topics=views), now, suspected=suspected)
        has_news = (cluster.topics, cluster.nodes) != (before.topics, before.nodes)
        is_all_there = not self._ask_again(asked, views)
        # A response without news counts like a failure (KIP-580): a broker in trouble was asked ten times a second.
        self._attempts = 0 if has_news and is_all_there else self._attempts + 1
        has_changed = before.cluster_id not in {None, cluster.cluster_id}
        if has_changed:
            self._client.cluster_changed(answer.from_node)  # before its connection becomes another node's
        self._client.end_rebootstrap()
        self._publish(cluster)
        if has_changed:
            now_id, id_before = printable(cluster.cluster_id or ""), printable(before.cluster_id or "")
            self._log.warning("cluster_changed", cluster_id=now_id, before=id_before)
            self.request_update("cluster_changed")  # what was asked for may have been one topic
        self._end_first_answers(None)

    def _ask_again(self, asked: list[str], views: tuple[TopicView, ...]) -> bool:
        # A topic in a passing error, or left out, is asked for again by itself; others wait for someone to ask.
        seen = {view.name for view in views if not _is_passing(view)}
        again = {topic for topic in asked if topic not in seen and topic in self._topics}
        self._urgent |= again
        return bool(again)

    def _publish(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._client.update_nodes(cluster)
        for listener in self._listeners:
            listener(cluster)

    def _refused(self, code: int) -> BrokerError:
        if code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._begin_anew("a broker asked for it")
        return BrokerError.of(code, f"Metadata was refused: {ErrorCode.in_words(code)}", retriable=True)

    def _note_failure(self, error: KafkaError) -> None:
        self.last_error = error
        self._attempts += 1
        self._is_full_wanted = True
        self._log.debug("metadata_update_failed", reason=str(error), attempts=self._attempts)
        if isinstance(error, _FOR_GOOD):
            self._end_first_answers(error)
        # Not counted from the last answer, which may be old because nobody has asked since.
        now = asyncio.get_running_loop().time()
        if now - self._asking_since >= self._settings.metadata_recovery_rebootstrap_trigger_ms / 1000:
            self._begin_anew("no metadata for metadata_recovery_rebootstrap_trigger_ms")
            self._asking_since = now  # the next trigger counts from here

    def _begin_anew(self, reason: str) -> None:
        self._log.warning("rebootstrapping", reason=reason)
        self._client.rebootstrap()

    def _end_first_answers(self, error: KafkaError | None) -> None:
        waiting, self._first_answers = self._first_answers, []
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error.fresh())


def _refusal_of_topic(code: int) -> ErrorCode | None:
    known = ErrorCode.of(code)
    return None if known is None or known in _HOPEFUL or known.retriable else known


def _is_passing(view: TopicView) -> bool:
    if _refusal_of_topic(view.error_code) is not None:
        return False
    if view.error_code or not view.partitions:  # a topic has partitions: none are named by who does not know them yet
        return True
    return view.partitions.lacks_leader


def _refusal(answer: MetadataResponse) -> int:
    """Return the code of an answer that says nothing else; a version is refused topic by topic where that must be."""
    is_version = ErrorCode.UNSUPPORTED_VERSION in answer.error_codes
    return answer.error_code or (ErrorCode.UNSUPPORTED_VERSION if is_version else ErrorCode.NONE)
