"""Hostile brokers: garbage, responses to other requests, and responses that are changed on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aioproducer.testing import ApiKey, Where

if TYPE_CHECKING:
    from tests.programs.simulation.nemesis import Nemesis


def hostile_bytes(nemesis: Nemesis, chance: Random) -> None:
    """An answer is garbage or a stranger's, comes twice, has a wrong size or id, or leaves a partition out."""
    faults, skip = nemesis.model.faults, chance.randrange(3)
    where = Where(api=chance.choice((ApiKey.PRODUCE, ApiKey.PRODUCE, None)))
    dice = chance.randrange(7)
    nemesis.fired("hostile bytes")
    if dice == 0:
        faults.garbage(chance.randbytes(chance.randint(1, 200)), where, skip=skip)
    elif dice == 1:
        faults.wrong_correlation_id(where, skip=skip)
    elif dice == 2:
        faults.oversized_frame(where, size=chance.choice((2**31 - 1, -5, -(2**31), 500_000_000)), skip=skip)
    elif dice == 3:
        stranger = nemesis.node(chance)
        stranger.stranger_times += 1
        nemesis.network.cut_all(stranger, "someone else listens there now")
    elif dice == 4:
        nemesis.node(chance).echo_times += 1
    else:
        place = nemesis.place(chance)
        if dice == 5:
            faults.error(6, place)  # so what the answer omits was not even appended
        nemesis.network.frames.omissions.append(faults.omit_partition(place))
        nemesis.network.watch.may_omit()


def lies(nemesis: Nemesis, chance: Random) -> None:
    """Change bytes of responses: nothing hangs and nothing grows."""
    nemesis.node(chance).lie_times += chance.randint(1, 4)


HOSTILE_FAULTS: Mapping[str, Callable[[Nemesis, Random], None]] = {"hostile bytes": hostile_bytes, "lies": lies}
