"""Faults of the coordinators of transactions and groups, and of requests to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aioproducer.testing import ApiKey, CoordinatorKind, Where

if TYPE_CHECKING:
    from tests.programs.simulation.nemesis import Nemesis

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


def busy(nemesis: Nemesis, chance: Random) -> None:
    """Coordinators are loading, elsewhere, not there, or have not completed the transaction before."""
    api = chance.choice(ASKED)
    is_of_groups = api in {ApiKey.FIND_COORDINATOR, ApiKey.TXN_OFFSET_COMMIT}
    code = 15 if api is ApiKey.FIND_COORDINATOR else chance.choice(BUSY if is_of_groups else WITH_TRANSACTIONS)
    nemesis.model.faults.error(code, Where(api=api), times=chance.randint(1, 4), skip=chance.randrange(3))


def moves(nemesis: Nemesis, chance: Random) -> None:
    """The coordinator of the transactional id is another broker from now on, which loads first."""
    live = nemesis.model.live_nodes()
    if live:
        _move_to(nemesis, chance.choice(live))


def lost(nemesis: Nemesis, chance: Random) -> None:
    """A request of a transaction, or its answer, is lost with the connection."""
    where = Where(api=chance.choice(ASKED))
    faults, times, skip = nemesis.model.faults, chance.randint(1, 3), chance.randrange(3)
    faults.drop_connection(where, after_append=chance.random() < 0.6, times=times, skip=skip)


def late(nemesis: Nemesis, chance: Random) -> None:
    """A request of a transaction is served late, or answered late, perhaps after its client has hung up."""
    delay_s = chance.uniform(0, 2) * nemesis.request_timeout_s
    where = Where(api=chance.choice(ASKED))
    faults, times, skip = nemesis.model.faults, chance.randint(1, 3), chance.randrange(3)
    faults.delay(delay_s, where, after_append=chance.random() < 0.5, times=times, skip=skip)


def strays(nemesis: Nemesis, chance: Random) -> None:
    """Serve the end of a transaction when its client has hung up, asked again, and is in the next one.

    So is, sometimes, the request for a new epoch that the client makes because of that.
    """
    faults, timeout_s = nemesis.model.faults, nemesis.request_timeout_s
    asked = [chance.choice((ApiKey.END_TXN, ApiKey.END_TXN, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN))]
    if chance.random() < 0.8:
        asked.append(ApiKey.INIT_PRODUCER_ID)
    for api in asked:
        # A copy of InitProducerId is waited for as long as the client waits for an answer, and no longer.
        longest = 1.9 if api is ApiKey.INIT_PRODUCER_ID else 2.5
        faults.delay(chance.uniform(1.05, longest) * timeout_s, Where(api=api), after_append=False)
    nemesis.fired("strays")


def late_offsets(nemesis: Nemesis, chance: Random) -> None:
    """Offsets of one transaction are served in the next. As long as the client waits for an answer, and no longer."""
    delay_s = chance.uniform(1.05, 1.9) * nemesis.request_timeout_s
    nemesis.model.faults.delay(delay_s, Where(api=ApiKey.TXN_OFFSET_COMMIT), after_append=False)
    nemesis.fired("late offsets")


def expired(nemesis: Nemesis, chance: Random) -> None:
    """The transactional id expires, as if it had been idle for a week; not while it is in a transaction."""
    if nemesis.model.transactions.expire(TRANSACTIONAL_ID, nemesis.now):
        nemesis.expired_at.append(nemesis.now)
        nemesis.fired("expired")
        return
    nemesis.later(0.01 * nemesis.request_timeout_s, lambda: expired(nemesis, chance))


def upgrade(nemesis: Nemesis, chance: Random) -> None:
    """The cluster finalizes transactions of version 2, if its release has them."""
    del chance
    _finalize(nemesis, LAST_VERSION, "upgrade")


def downgrade(nemesis: Nemesis, chance: Random) -> None:
    """The cluster finalizes an earlier version of transactions, if its release has several."""
    _finalize(nemesis, chance.randrange(LAST_VERSION), "downgrade")


def end_downgrade(nemesis: Nemesis) -> None:
    """Undo it, and let another coordinator take over: this one may answer no more for an id that it was asked of."""
    _finalize(nemesis, LAST_VERSION, "upgrade")
    now, nodes = nemesis.now, nemesis.model.live_nodes()
    former = nemesis.model.coordinators.node_of(CoordinatorKind.TRANSACTION, TRANSACTIONAL_ID, now)
    _move_to(nemesis, next((node_id for node_id in nodes if node_id != former), former))


def _move_to(nemesis: Nemesis, node_id: int) -> None:
    nemesis.model.coordinators.move(CoordinatorKind.TRANSACTION, TRANSACTIONAL_ID, node_id, now=nemesis.now)
    nemesis.fired("moves")


def _finalize(nemesis: Nemesis, version: int, fault: str) -> None:
    if "transaction.version" in nemesis.model.settings.profile.supported_features:
        nemesis.model.features.finalize_transaction_version(version)
        nemesis.fired(fault)


COORDINATOR_FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {
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
