"""Whether the ledger adds up, at each cut through it and in the end. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from aioproducer.cli.demonstration.transfers.orders import ACCOUNTS, BALANCE, Entry

ENTRIES_OF_AN_ORDER = 2


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What the check found."""

    orders: int
    done: int
    """Orders with both entries, once each."""
    torn: int
    """Orders with one entry alone."""
    doubled: int
    """Orders with more than two."""
    cuts: int
    """How often the ledger was added up."""
    wrong_cuts: int
    """How often it did not come to what it should."""
    total: int
    """Of all accounts, at the last cut."""

    @property
    def holds(self) -> bool:
        """Whether every order was carried out once, and the sum was always the same."""
        return self.done == self.orders and not (self.torn or self.doubled or self.wrong_cuts) and self.cuts > 0


class LedgerCheck:
    """Adds up.

    Args:
        orders: how many there are.
    """

    def __init__(self, orders: int) -> None:
        self._entries = [0] * orders
        self._balances = [BALANCE] * ACCOUNTS
        self._cuts = self._wrong_cuts = 0

    @property
    def total(self) -> int:
        """Of all accounts now."""
        return sum(self._balances)

    @property
    def done(self) -> int:
        """Orders that have both entries."""
        return sum(count >= ENTRIES_OF_AN_ORDER for count in self._entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """Take the next entries."""
        for entry in entries:
            self._balances[entry.account] += entry.amount
            self._entries[entry.order] += 1

    def cut(self) -> None:
        """All that was committed at one time has been read: it must add up."""
        self._cuts += 1
        self._wrong_cuts += self.total != ACCOUNTS * BALANCE

    def report(self) -> LedgerReport:
        """What was found until now."""
        return LedgerReport(
            orders=len(self._entries),
            done=self._entries.count(ENTRIES_OF_AN_ORDER),
            torn=self._entries.count(1),
            doubled=sum(count > ENTRIES_OF_AN_ORDER for count in self._entries),
            cuts=self._cuts,
            wrong_cuts=self._wrong_cuts,
            total=self.total,
        )
