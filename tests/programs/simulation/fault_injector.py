"""Injects the faults of a plan, and heals everything in the end.

A fault (`faults.py`) begins at its time, and mostly ends by itself: after so many requests, or after a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.programs.simulation.coordinator_faults import end_downgrade
from tests.programs.simulation.faults import FAULTS, TOPIC, make_topic
from tests.programs.simulation.history import History
from tests.programs.simulation.log_checker import LogKeeper
from tests.programs.simulation.plan import Plan, PlannedFault
from tests.programs.simulation.secured import USER, Secured
from tests.programs.simulation.simulated_network import Node, SimulatedNetwork


class FaultInjector:
    def __init__(self, plan: Plan, network: SimulatedNetwork, keeper: LogKeeper, history: History) -> None:  # noqa: PLR0917
        self.plan = plan
        self.network = network
        self.model: ModelCluster = network.model
        self.keeper = keeper
        self.wall_clock_shift_ms = 0
        self.expired_at: list[float] = []  # virtual times when the transactional id has expired
        self.secured = Secured(plan, network.loop.time, history.violated)
        self._history = history
        self._loop = network.loop
        self._is_over = False

    def begin(self) -> None:
        for planned in self.plan.faults:
            self._loop.call_later(planned.at_s, self._inject, planned)

    def heal(self) -> None:
        """End everything that is wrong; nothing goes wrong afterwards."""
        self._is_over = True
        self._history.note("injector", "everything is healed")
        now = self._loop.time()
        self.model.faults.clear()
        self.speak_as_planned()
        self.network.names.clear_up()
        for number, node in self.network.nodes.items():
            self.model.brokers[number].stale_leaders = {}
            self.model.restart(number, now)
            self.model.hold_replication(number, now, held=False)
            self.network.clear_up(node)
        if self.model.credentials is not None:
            self._secure()
        if self.model.topics.named(TOPIC) is None:
            make_topic(self, self.plan.partitions)
        if "downgrade" in self.plan.enabled:
            end_downgrade(self)
        for partition in self.model.partitions():
            if partition.leader == -1:
                partition.move_leader(partition.isr[0], now)
        self.network.settle()

    def _secure(self) -> None:
        """Let client and brokers know the same, and connect again where certificates have changed."""
        self.secured.heal()
        self.set_password(self.secured.passwords.newest)
        self.secured.passwords.give(self.secured.passwords.newest)
        if self.secured.certificates is not None and self.secured.certificates.brokers:
            self.secured.certificates.trust(self.secured.certificates.brokers)
            for node in self.network.nodes.values():
                self.network.cut_all(node, "the node was restarted")

    def _inject(self, planned: PlannedFault) -> None:
        if self._is_over:
            return
        self._history.note("injector", "%s (%s)", FAULTS[planned.fault].__doc__, planned.fault)
        FAULTS[planned.fault](self, Random(planned.seed))
        self.network.settle()

    # What faults are made of

    def speak(self, versions: Mapping[ApiKey, tuple[int, int]]) -> None:
        settings = self.model.settings
        self.model.settings = replace(settings, profile=replace(settings.profile, versions=versions))
        for node in self.network.nodes.values():
            self.network.cut_all(node, "the broker was replaced by another release")

    def speak_as_planned(self) -> None:
        """Have all brokers list what they did at first, unless they do."""
        planned = profile_named(self.plan.profile).versions
        if self.model.settings.profile.versions is not planned:
            self.speak(planned)

    def set_password(self, password: str) -> None:
        """Change the password at the brokers."""
        assert self.model.credentials is not None
        self.model.credentials.change_password(USER, password)

    def fired(self, fault: str) -> None:
        """Count a fault that needs no request to have an effect."""
        self.network.wire_checker.fired(fault)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something in a while, unless all is healed by then."""
        self._loop.call_later(delay_s, self._unless_over, act)

    def _unless_over(self, act: Callable[[], None]) -> None:
        if not self._is_over:
            act()
            self.network.settle()

    @property
    def now(self) -> float:
        return self._loop.time()

    @property
    def request_timeout_s(self) -> float:
        return self.plan.number("request_timeout_ms") / 1000

    def node(self, rng: Random) -> Node:
        return self.network.nodes[rng.choice(self.plan.nodes)]

    def partition(self, rng: Random) -> Partition | None:
        """Any partition there is now; None while there is no topic."""
        partitions = self.model.partitions()
        return rng.choice(partitions) if partitions else None

    def place(self, rng: Random) -> Where:
        index = rng.choice((None, rng.randrange(self.plan.partitions)))
        return Where(api=ApiKey.PRODUCE, partition=index)

    def a_while(self, rng: Random) -> float:
        return rng.choice((0.05, 0.5, 1.0, 2.0)) * rng.random() * self.request_timeout_s
