"""A fault as an async context: it strikes on entering, says what it struck, and is lifted on leaving."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.programs.chaos.arena import Arena


@dataclass(frozen=True, slots=True)
class Strike:
    hold_s: float
    """Seconds that it stays; 0 if it is over at once."""

    nodes: list[int] = field(default_factory=list)
    """Nodes whose leadership it ends or moves."""

    clients: list[int] = field(default_factory=list)
    """Clients whose process it stops: from this number, below that one."""

    detail: str = ""


Fault: TypeAlias = Callable[[Arena], AbstractAsyncContextManager[Strike]]
