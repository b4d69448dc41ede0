"""Refreshes the metadata of the cluster when needed.

A refresh is requested for an unknown topic, a moved leader or a lost connection, when a response left a topic without
what is needed to send to it, when the last refresh is `metadata_max_age_ms` old, and every second while a failed node
is tried again. At most one is under way; requests that come meanwhile lead to one further refresh.

A new topic is asked for alone; everything else asks for all topics in use. A topic not used for
`metadata_max_idle_ms`, or up to a hundredth less, is forgotten. The pause between two refreshes is `retry_backoff_ms`;
it grows while refreshes follow each other and fail, bring nothing new, or leave a topic in error: a topic created on
first use is "unknown" at first, and known a moment later. Unless the last refresh has failed, a new topic ends the
pause.

Source: Metadata, ProducerMetadata and NetworkClient.DefaultMetadataUpdater in Apache Kafka; KIP-526, KIP-580, KIP-951,
KIP-1102.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._network.cluster_updates import changed_topics, merge, with_leader_hints, without_topics
from aioproducer._network.refusals import is_for_good, is_refusal
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import METADATA, decode_metadata_response, encode_metadata_request
from aioproducer._timing.retry_backoff import ExponentialBackoff, RandomSource
from aioproducer.cluster import Cluster, MetadataResponse, Node, PartitionView, TopicView
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
)

if TYPE_CHECKING:
    from aioproducer._logs import EventLog
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._protocol.produce import NodeEndpoint
    from aioproducer.records import TopicPartition


class MetadataSettings(NamedTuple):
    """Options of metadata, with Kafka's defaults; milliseconds."""

    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    """Without a valid response for this long, start again from the bootstrap addresses."""
    allow_auto_topic_creation: bool = True  # brokers have their own option: auto.create.topics.enable


WHILE_AWAY_S: Final = 1.0  # interval of refreshes while a failed node is tried again: an attempt may hang for long

_HOPEFUL: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Codes of a topic that may pass: brokers with ZooKeeper return the last while too few are up to create the topic."""


class MetadataRefresher:  # noqa: PLR0904  # what the network reports and what the producer wants meet here
    """Owns the `Cluster`; `run` is its task."""

    def __init__(
        self, client: NetworkClient, settings: MetadataSettings, *, random: RandomSource, log: EventLog
    ) -> None:
        self.cluster = Cluster()  # replaced by each refresh, never changed
        self.refreshes = 0  # number of merged responses
        self.last_error: KafkaError | None = None  # error of the last refresh; None if it succeeded
        self._client = client
        self._settings = settings
        self._log = log
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random=random)
        self._topics: OrderedDict[str, float] = OrderedDict()  # in use, by the time of the last use that was noted
        self._noted_for_s = settings.metadata_max_idle_ms / 100_000  # noting each use would cost each batch more
        self._urgent: set[str] = set()  # to be asked for alone
        self._suspected: set[str] = set()  # of a refused Produce: lower epochs may be true (see Cluster)
        self._is_full_wanted = True
        self._is_answer_wanted = False  # of any broker, without news of topics
        self._is_to_look = asyncio.Event()  # set to check whether a refresh is wanted
        self._is_new_topic = asyncio.Event()  # ends the pause between two refreshes
        self._attempts = 0  # in a row that failed or did not help; reset when no refresh is wanted
        self._asking_since = math.inf  # first attempt after the last valid response
        self._last_full = 0.0
        self._forgotten: list[str] = []  # since the last cluster was published
        self._listeners: list[Callable[[Cluster, Collection[str]], None]] = []
        self._refusal_listeners: list[Callable[[KafkaError], None]] = []
        self._first_responses: list[asyncio.Future[None]] = []

    # What the network reports

    def node_failed(self) -> None:
        """Ask for a refresh: other nodes may lead its partitions by now. Batches that wait for the node do not ask."""
        self.request_update("node_failed")

    def node_tried_again(self) -> None:
        """Check whether to refresh more often: the attempt to connect may hang."""
        self._is_to_look.set()

    # What the producer and the sender ask for

    def on_update(self, listener: Callable[[Cluster, Collection[str]], None]) -> None:
        """Call a function with each new cluster and the names of the topics that have come, gone or changed in it."""
        self._listeners.append(listener)

    def on_refusal(self, listener: Callable[[KafkaError], None]) -> None:
        """Call a function with the error when every broker that was asked refuses this client."""
        self._refusal_listeners.append(listener)

    def add_topic(self, topic: str, now: float) -> float:
        """Note that a topic is in use; ask for it at once if it is new or in error.

        Returns:
            The time until which its next uses need not be noted (monotonic seconds).
        """
        is_new, view = topic not in self._topics, self.cluster.topics.get(topic)
        is_in_error = view is not None and bool(view.error_code)
        if is_new or is_in_error:
            self._urgent.add(topic)
            self._is_to_look.set()
        if is_new:
            self._is_new_topic.set()
        self._topics[topic] = now
        self._topics.move_to_end(topic)
        return now if is_in_error else now + self._noted_for_s

    def topic_error(self, topic: str) -> int:
        view = self.cluster.topics.get(topic)
        return view.error_code if view is not None else 0

    def throttle_left_s(self) -> float:
        """Return for how many seconds all brokers throttle this client (KIP-219)."""
        return self._client.throttle_left_s()

    def missing(self) -> str:
        """Return what the connections to brokers wait for; empty if none waits for anything."""
        return self._client.missing()

    def topic_refusal(self, topic: str) -> ErrorCode | None:
        return _refusal_of_topic(self.topic_error(topic))

    def request_update(self, reason: str, *, topic: str | None = None) -> None:
        """Ask for a refresh of all topics in use, soon.

        Args:
            topic: of a Produce that was refused with "unknown" or "not leader", if that is the reason.
        """
        if topic is not None:
            self._suspected.add(topic)
        if not self._is_full_wanted:
            self._log.debug("metadata_update_requested", reason=reason)
        self._is_full_wanted = True
        self._is_to_look.set()

    def ask_if_idle(self, now: float) -> None:
        """Ask a broker for no more than a response, unless one has just answered or is being asked."""
        if self._client.silence.is_worth_asking(now):
            self._is_answer_wanted = True
            self._is_to_look.set()

    def apply_leader_hints(
        self,
        hints: Mapping[TopicPartition, PartitionView],
        *,
        topic_ids: Mapping[str, bytes],
        endpoints: Mapping[int, NodeEndpoint],
    ) -> None:
        """Take the new leaders that a Produce response names (KIP-951)."""
        nodes = [Node(node_id, *endpoint) for node_id, endpoint in endpoints.items()]
        cluster = with_leader_hints(self.cluster, hints, topic_ids=topic_ids, endpoints=nodes)
        if cluster is not self.cluster:
            self._publish(cluster, changed_topics(self.cluster, cluster, {topic for topic, _ in hints}))

    async def first_response(self, timeout_s: float) -> None:
        """Wait until any broker has answered, at the start of a producer.

        Raises:
            MetadataTimeoutError: no broker has answered in time; with the last error, if any.
            UnsupportedVersionError: the brokers and this client have no version in common.
            AuthenticationError: the brokers refuse the credentials.
        """
        if self.refreshes:
            return
        answered = asyncio.get_running_loop().create_future()
        self._first_responses.append(answered)
        # The refresh itself may have begun after a refusal that another task met, and then waits out its pause.
        refusal = asyncio.ensure_future(self._client.refused_by_all())
        refusal.add_done_callback(self._end_if_refused)
        try:
            async with asyncio.timeout(timeout_s):
                await answered
        except TimeoutError as error:
            said = self.last_error
            why = self._client.missing() if said is None else str(said)
            text = f"no broker has answered within {timeout_s:g} s{why and f': {why}'}"
            raise MetadataTimeoutError(text, last_broker_error=said) from (said or error)
        finally:
            refusal.cancel()

    def _end_if_refused(self, refusal: asyncio.Future[KafkaError]) -> None:
        if not refusal.cancelled():
            self._end_first_responses(refusal.result())

    def fail_waiting(self, error: KafkaError) -> None:
        self._end_first_responses(error)

    # The task

    async def run(self) -> None:
        self._last_full = asyncio.get_running_loop().time()
        while True:
            await self._wait_until_wanted()
            try:
                await self._refresh()
            except KafkaError as error:
                self._note_failure(error)
            except asyncio.CancelledError:
                self._is_full_wanted = True  # if it is run again, in place of what is not answered
                raise
            await self._pause()

    async def _wait_until_wanted(self) -> None:
        clock, client = asyncio.get_running_loop().time, self._client
        if not self._is_wanted():
            self._attempts = 0  # the next refresh is no repetition
        while not self._is_wanted():
            self._is_to_look.clear()
            left_s = self._last_full + self._settings.metadata_max_age_ms / 1000 - clock()
            wait_s = min(left_s, WHILE_AWAY_S) if client.retries_failed_node() else left_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._is_to_look.wait()
            except TimeoutError:
                if wait_s == left_s or client.retries_failed_node():
                    self._is_full_wanted = True

    def _is_wanted(self) -> bool:
        return self._is_full_wanted or self._is_answer_wanted or bool(self._urgent)

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
        self._client.silence.asked(now)
        self._forget_idle(now)
        topics = self._topics_to_ask()
        suspected = frozenset(self._suspected)
        response = await self._client.request(
            METADATA,
            lambda version: encode_metadata_request(
                version, topics, allow_auto_topic_creation=self._settings.allow_auto_topic_creation
            ),
            lambda reply: decode_metadata_response(reply.version, reply.payload, from_node=reply.node_id),
        )
        self._client.silence.answered()
        if code := _refusal(response):
            raise self._refused(code)
        if not any(node.is_valid for node in response.nodes):
            raise BrokerError("a broker answered Metadata without naming a broker to connect to", retriable=True)
        self._suspected -= suspected
        self._merge(response, topics, suspected)

    def _topics_to_ask(self) -> list[str]:
        # Reset before the request: wishes that come meanwhile are for the next refresh.
        self._is_new_topic.clear()
        self._is_answer_wanted = False
        urgent, self._urgent = self._urgent & self._topics.keys(), set()
        if not self._is_full_wanted:
            return sorted(urgent)
        self._is_full_wanted = False
        self._last_full = asyncio.get_running_loop().time()
        return sorted(self._topics)

    def _forget_idle(self, now: float) -> None:
        oldest = now - self._settings.metadata_max_idle_ms / 1000
        idle: list[str] = []
        while self._topics and next(iter(self._topics.values())) < oldest:
            idle.append(self._topics.popitem(last=False)[0])
        self._forgotten += idle
        self.cluster = without_topics(self.cluster, idle)

    def _merge(self, response: MetadataResponse, asked: list[str], suspected: frozenset[str]) -> None:
        now = asyncio.get_running_loop().time()
        views = tuple(view for view in response.topics if view.name in self._topics)
        self.last_error = None
        self.refreshes += 1
        self._asking_since = math.inf
        before, cluster = self.cluster, merge(self.cluster, response._replace(topics=views), now, suspected=suspected)
        has_changed = before.cluster_id not in {None, cluster.cluster_id}
        named = {*before.topics, *cluster.topics} if has_changed else [view.name for view in views]
        changed = changed_topics(before, cluster, named)
        has_news = bool(changed) or cluster.nodes != before.nodes
        is_all_there = not self._ask_again(asked, views)
        # A response without news counts like a failure (KIP-580): a broker in trouble was asked ten times a second.
        self._attempts = 0 if has_news and is_all_there else self._attempts + 1
        if has_changed:
            self._client.cluster_changed(response.from_node)  # before the connection becomes another node's
        self._client.end_rebootstrap()
        self._publish(cluster, changed)
        if has_changed:
            now_id, id_before = printable(cluster.cluster_id or ""), printable(before.cluster_id or "")
            self._log.warning("cluster_changed", cluster_id=now_id, before=id_before)
            self.request_update("cluster_changed")  # this refresh may have asked for one topic
        self._end_first_responses(None)

    def _ask_again(self, asked: list[str], views: tuple[TopicView, ...]) -> bool:
        # A topic with a passing error, or left out, is asked for again; other topics only when requested.
        seen = {view.name for view in views if not _is_passing(view)}
        again = {topic for topic in asked if topic not in seen and topic in self._topics}
        self._urgent |= again
        return bool(again)

    def _publish(self, cluster: Cluster, changed: Collection[str]) -> None:
        forgotten, self._forgotten = self._forgotten, []
        self.cluster = cluster
        self._client.update_nodes(cluster)
        names = list(dict.fromkeys([*changed, *forgotten]))  # while no broker answers, a topic may be forgotten twice
        for listener in self._listeners:
            listener(cluster, names)

    def _refused(self, code: int) -> BrokerError:
        if code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._begin_anew("a broker asked for it")
        return BrokerError.of(code, f"Metadata was refused: {ErrorCode.in_words(code)}", retriable=True)

    def _note_failure(self, error: KafkaError) -> None:
        self.last_error = error
        self._attempts += 1
        self._is_full_wanted = True
        self._log.debug("metadata_update_failed", reason=str(error), attempts=self._attempts)
        if is_for_good(error):
            self._end_first_responses(error)
        if is_refusal(error):
            for refused in self._refusal_listeners:
                refused(error)
        # Not counted from the last response, which may be old because no refresh was needed.
        now = asyncio.get_running_loop().time()
        self._client.silence.failed(now)
        if now - self._asking_since >= self._settings.metadata_recovery_rebootstrap_trigger_ms / 1000:
            self._begin_anew("no metadata for metadata_recovery_rebootstrap_trigger_ms")
            self._asking_since = now  # the next trigger counts from here

    def _begin_anew(self, reason: str) -> None:
        self._log.warning("rebootstrapping", reason=reason)
        self._client.rebootstrap()

    def _end_first_responses(self, error: KafkaError | None) -> None:
        waiting, self._first_responses = self._first_responses, []
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
    if view.error_code or not view.partitions:  # a broker that does not know the partitions yet names none
        return True
    return view.partitions.lacks_leader


def _refusal(response: MetadataResponse) -> int:
    # Some versions can refuse the version of a request only topic by topic.
    is_version = ErrorCode.UNSUPPORTED_VERSION in response.error_codes
    return response.error_code or (ErrorCode.UNSUPPORTED_VERSION if is_version else ErrorCode.NONE)
