"""The whole embedded cluster, without I/O: brokers, topics, and their failures.

driver                                 model
connected / receive / disconnected ->  brokers serve, effects collect
advance(now) at next_wakeup()      ->  long polls end, followers copy, delays pass
kill / restart / move_leader       ->  leaders change, waiting answers end
take_effects()                     <-  bytes to send, connections to close, in order
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeAlias

from aioproducer.testing.cluster_security import LISTENERS
from aioproducer.testing.fake_broker.broker import Broker
from aioproducer.testing.fake_broker.client_metrics import ClientMetrics
from aioproducer.testing.fake_broker.consumer_groups import ConsumerGroups
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind, CoordinatorTable, ProducerIds
from aioproducer.testing.fake_broker.exchange import Effect, Exchange, SeenRequest
from aioproducer.testing.fake_broker.faults import Fault, Faults
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.schedule import Appointment, Schedule
from aioproducer.testing.fake_broker.security import Credentials, SaslSession, SeenAuthentication
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.topics import TopicCatalogue
from aioproducer.testing.fake_broker.transaction_coordinator import TransactionCoordinator, TransactionEntry
from aioproducer.testing.fake_broker.transaction_markers import MarkerWriter
from aioproducer.testing.fake_broker.version_profiles import TRANSACTIONS_V2, Features
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

REQUESTS_KEPT = 10_000

Observer: TypeAlias = Callable[[Exchange, object, float], None]
"""Takes the exchange, its response (a tree, or for Produce the `ProduceResult`s), and the time in seconds."""


class ModelCluster:
    """Brokers 1 to `nodes` and their shared state; `wake` is called when something is due outside driver calls."""

    def __init__(
        self, nodes: int, settings: ClusterSettings, *, random: Random, wake: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.random = random
        self.schedule: Schedule = Schedule()
        self.faults: Faults = Faults(self._release)
        self.brokers: dict[int, Broker] = {number: Broker(number, self) for number in range(1, nodes + 1)}
        self.groups: ConsumerGroups = ConsumerGroups(self.schedule, random, settings)
        self.topics: TopicCatalogue = TopicCatalogue(
            settings, self.schedule, random=random, live_nodes=self.live_nodes, drop_offsets=self.groups.drop_topic
        )
        self.producer_ids: ProducerIds = ProducerIds(settings.producer_ids_load_s)
        self.features: Features = Features(settings.profile, settings.transaction_version)
        self.coordinators: CoordinatorTable = CoordinatorTable(
            self.live_nodes, settings.coordinator_load_s, unload_group=self.groups.unload
        )
        self.markers: MarkerWriter = MarkerWriter(self.topics, self.groups, settings=settings, schedule=self.schedule)
        self.transactions: TransactionCoordinator = TransactionCoordinator(
            self.producer_ids,
            self.schedule,
            write_markers=self._write_markers,
            is_version_2=lambda: self.features.transaction_version >= TRANSACTIONS_V2,
            coordinator_epoch=partial(self.coordinators.epoch_of, CoordinatorKind.TRANSACTION),
            settings=settings,
        )
        self.client_metrics: ClientMetrics = ClientMetrics(settings.metrics_subscription, random)
        self.requests: deque[SeenRequest] = deque(maxlen=REQUESTS_KEPT)
        self.authentications: deque[SeenAuthentication] = deque(maxlen=REQUESTS_KEPT)
        self.intruders: list[SeenRequest] = []
        """Requests that came between a SaslHandshake and the last token, where only tokens may come."""

        security = settings.security
        self.credentials: Credentials | None = None if security is None else Credentials(security, random)
        self.observe: Observer = _nobody_looks
        """Called with every response of a broker, before faults change it; simulations count and print them."""
        self._effects: list[Effect] = []
        self._wake = wake
        self._unnoticed: dict[int, Appointment] = {}
        self._was_clean: dict[int, bool] = {}

    # Called by the driver

    def advance(self, now: float) -> None:
        self.schedule.run_due(now)

    def next_wakeup(self) -> float | None:
        """When `advance` has something to do, in seconds; None if nothing is scheduled."""
        return self.schedule.next_at()

    def take_effects(self) -> list[Effect]:
        """Return the pending effects, oldest first, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    def live_nodes(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_alive]

    # Failures of brokers

    def kill(self, node_id: int, now: float, *, clean: bool = False) -> None:
        """Stop a broker; its partitions get other leaders when the death is noticed.

        With `clean` (a controlled shutdown) they move at once, and it keeps only the last batch of each producer.
        """
        broker = self.brokers[node_id]
        if not broker.is_alive:
            return
        broker.die()
        self._was_clean[node_id] = clean
        for partition in self.partitions():
            partition.node_died(node_id)
        if clean or self.settings.failover_delay_s == 0:
            self._fence(node_id, now)
        else:
            when = now + self.settings.failover_delay_s
            self._unnoticed[node_id] = self.schedule.at(when, lambda then: self._fence(node_id, then))

    def restart(self, node_id: int, now: float) -> None:
        broker = self.brokers[node_id]
        if broker.is_alive:
            return
        unnoticed = self._unnoticed.pop(node_id, None)
        if unnoticed is not None:
            unnoticed.cancel()
            self._fence(node_id, now)
        broker.is_alive = True
        for partition in self.partitions():
            partition.node_returned(node_id, now, was_clean=self._was_clean[node_id])

    def hold_replication(self, node_id: int, now: float, *, held: bool) -> None:
        """Let a broker stop or resume copying from the leaders."""
        for partition in self.partitions():
            partition.hold_replication(node_id, now, held=held)

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics for partition in topic.partitions]

    def _fence(self, node_id: int, now: float) -> None:
        self._unnoticed.pop(node_id, None)
        for topic in self.topics:
            for partition in topic.partitions:
                partition.node_fenced(node_id, now, unclean=topic.config.allows_unclean_election)

    def end_sessions(self, now: float) -> None:
        """Let every session expire now: a client must authenticate again before anything else (KIP-368)."""
        for broker in self.brokers.values():
            broker.end_sessions(now)

    # Called by brokers

    def new_session(self, listener: str) -> SaslSession | None:
        """Return the session of a new connection; None for a listener without SASL."""
        security, credentials = self.settings.security, self.credentials
        if security is None or credentials is None or not LISTENERS.get(listener, "").startswith("SASL"):
            return None
        expires = self.settings.profile.versions[ApiKey.SASL_AUTHENTICATE][1] > 0  # with the field for the lifetime
        return SaslSession(listener, security, credentials, random=self.random, expires=expires)

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def note(self, request: SeenRequest) -> None:
        self.requests.append(request)

    def _write_markers(self, entry: TransactionEntry, done: Callable[[float], None], now: float) -> None:
        epoch = self.coordinators.epoch_of(CoordinatorKind.TRANSACTION, entry.transactional_id, now)
        self.markers.write_all(entry, epoch, done, now=now)

    def _release(self, fault: Fault) -> None:
        for broker in self.brokers.values():
            self.schedule.at(0.0, lambda now, broker=broker: broker.release(fault, now))  # type: ignore[misc]
        self._wake()


def _nobody_looks(_exchange: Exchange, _answer: object, _now: float) -> None:
    pass
