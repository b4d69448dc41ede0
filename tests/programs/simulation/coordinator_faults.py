"""Faults of the coordinators of transactions and groups, and of requests to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aioproducer.testing import ApiKey, CoordinatorKind, Where

if TYPE_CHECKING:
    from tests.programs.simulation.fault_injector import FaultInjector

TRANSACTIONAL_ID = "simulated-1"
ASKED = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.FIND_COORDINATOR,
)
"""Requests of a transactional producer to coordinators; the end of a transaction is where most can go wrong."""

BUSY = (14, 15, 16)
WITH_TRANSACTIONS = (14, 15, 16, 51, 51)
LAST_VERSION = 2


def busy(injector: FaultInjector, rng: Random) -> None:
    """Coordinators are loading, elsewhere, not there, or have not completed the transaction before."""
    api = rng.choice(ASKED)
    is_of_groups = api in {ApiKey.FIND_COORDINATOR, ApiKey.TXN_OFFSET_COMMIT}
    code = 15 if api is ApiKey.FIND_COORDINATOR else rng.choice(BUSY if is_of_groups else WITH_TRANSACTIONS)
    injector.model.faults.error(code, Where(api=api), times=rng.randint(1, 4), skip=rng.randrange(3))


def moves(injector: FaultInjector, rng: Random) -> None:
    """The coordinator of the transactional id is another broker from now on, which loads first."""
    live = injector.model.live_nodes()
    if live:
        _move_to(injector, rng.choice(live))


def lost(injector: FaultInjector, rng: Random) -> None:
    """A request of a transaction, or its answer, is lost with the connection."""
    where = Where(api=rng.choice(ASKED))
    faults, times, skip = injector.model.faults, rng.randint(1, 3), rng.randrange(3)
    faults.drop_connection(where, after_append=rng.random() < 0.6, times=times, skip=skip)


def late(injector: FaultInjector, rng: Random) -> None:
    """A request of a transaction is served late, or answered late, perhaps after its client has hung up."""
    delay_s = rng.uniform(0, 2) * injector.request_timeout_s
    where = Where(api=rng.choice(ASKED))
    faults, times, skip = injector.model.faults, rng.randint(1, 3), rng.randrange(3)
    faults.delay(delay_s, where, after_append=rng.random() < 0.5, times=times, skip=skip)


def strays(injector: FaultInjector, rng: Random) -> None:
    """Serve the end of a transaction when its client has hung up, asked again, and is in the next one.

    So is, sometimes, the request for a new epoch that the client makes because of that.
    """
    faults, timeout_s = injector.model.faults, injector.request_timeout_s
    asked = [rng.choice((ApiKey.END_TXN, ApiKey.END_TXN, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN))]
    if rng.random() < 0.8:
        asked.append(ApiKey.INIT_PRODUCER_ID)
    for api in asked:
        # A copy of InitProducerId is waited for as long as the client waits for an answer, and no longer.
        longest = 1.9 if api is ApiKey.INIT_PRODUCER_ID else 2.5
        faults.delay(rng.uniform(1.05, longest) * timeout_s, Where(api=api), after_append=False)
    injector.fired("strays")


def late_offsets(injector: FaultInjector, rng: Random) -> None:
    """Offsets of one transaction are served in the next. As long as the client waits for an answer, and no longer."""
    delay_s = rng.uniform(1.05, 1.9) * injector.request_timeout_s
    injector.model.faults.delay(delay_s, Where(api=ApiKey.TXN_OFFSET_COMMIT), after_append=False)
    injector.fired("late offsets")


def expired(injector: FaultInjector, rng: Random) -> None:
    """The transactional id expires, as if it had been idle for a week; not while it is in a transaction."""
    if injector.model.transactions.expire(TRANSACTIONAL_ID, injector.now):
        injector.expired_at.append(injector.now)
        injector.fired("expired")
        return
    injector.later(0.01 * injector.request_timeout_s, lambda: expired(injector, rng))


def upgrade(injector: FaultInjector, rng: Random) -> None:
    """The cluster finalizes transactions of version 2, if its release has them."""
    del rng
    _finalize(injector, LAST_VERSION, "upgrade")


def downgrade(injector: FaultInjector, rng: Random) -> None:
    """The cluster finalizes an earlier version of transactions, if its release has several."""
    _finalize(injector, rng.randrange(LAST_VERSION), "downgrade")


def end_downgrade(injector: FaultInjector) -> None:
    """Undo it, and let another coordinator take over: this one may answer no more for an id that it was asked of."""
    _finalize(injector, LAST_VERSION, "upgrade")
    now, nodes = injector.now, injector.model.live_nodes()
    former = injector.model.coordinators.node_of(CoordinatorKind.TRANSACTION, TRANSACTIONAL_ID, now)
    _move_to(injector, next((node_id for node_id in nodes if node_id != former), former))


def _move_to(injector: FaultInjector, node_id: int) -> None:
    injector.model.coordinators.move(CoordinatorKind.TRANSACTION, TRANSACTIONAL_ID, node_id, now=injector.now)
    injector.fired("moves")


def _finalize(injector: FaultInjector, version: int, fault: str) -> None:
    if "transaction.version" in injector.model.settings.profile.supported_features:
        injector.model.features.finalize_transaction_version(version)
        injector.fired(fault)


COORDINATOR_FAULTS: Mapping[str, Callable[[FaultInjector, Random], None]] = {
    "busy": busy,
    "moves": moves,
    "lost": lost,
    "late": late,
    "strays": strays,
    "late offsets": late_offsets,
    "expired": expired,
    "upgrade": upgrade,
    "downgrade": downgrade,
}
