"""What a fault is: an async context that strikes on entering, says what it struck, and is lifted on leaving."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.programs.chaos.arena import Arena


@dataclass(frozen=True, slots=True)
class Strike:
    hold_s: float
    """How long it is to stay; 0 where all of it has happened already."""

    nodes: list[int] = field(default_factory=list)
    """Nodes whose leadership it ends or moves."""

    clients: list[int] = field(default_factory=list)
    """Clients whose process it stops: from this number, below that one."""

    detail: str = ""
    """For people."""


Fault: TypeAlias = Callable[[Arena], AbstractAsyncContextManager[Strike]]
