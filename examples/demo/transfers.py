"""Orders to transfer money, the ledger's entries for them, and the check that the ledger adds up."""

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

ORDERS, ORDER_PARTITIONS = "transfers", 4
LEDGER = "ledger"
"""With one partition: a reader sees commits partition by partition, so a cut through one is consistent."""

GROUP = "bank"
ACCOUNTS = 50
BALANCE = 1_000
"""Of each account at the beginning."""

MOST = 100
ENTRIES_PER_ORDER = 2


class Entry(NamedTuple):
    """A line of the ledger."""

    order: int
    account: int
    amount: int


class Order(NamedTuple):
    """Money to be transferred."""

    number: int
    payer: int
    payee: int
    amount: int

    def entries(self) -> tuple[Entry, Entry]:
        """Return the order's two entries in the ledger."""
        return Entry(self.number, self.payer, -self.amount), Entry(self.number, self.payee, self.amount)


def encode(item: Order | Entry) -> bytes:
    """Return an order or entry as the value of a record."""
    return json.dumps(item).encode()


def made_up_orders(count: int) -> list[Order]:
    """Return the same orders every time."""
    chance = Random(2026)  # noqa: S311 - no secrets
    orders = []
    for number in range(count):
        payer, payee = chance.sample(range(ACCOUNTS), 2)
        orders.append(Order(number, payer, payee, chance.randint(1, MOST)))
    return orders


class LedgerCheck:
    """Adds up the ledger, at each cut through it and at the end."""

    def __init__(self, orders: int) -> None:
        self._entries = [0] * orders
        self._balances = [BALANCE] * ACCOUNTS
        self.cuts = self.wrong_cuts = 0

    @property
    def total(self) -> int:
        """The sum of all accounts."""
        return sum(self._balances)

    @property
    def done(self) -> int:
        """The number of orders with both entries."""
        return sum(count >= ENTRIES_PER_ORDER for count in self._entries)

    @property
    def torn(self) -> int:
        """The number of orders with only one entry."""
        return self._entries.count(1)

    @property
    def doubled(self) -> int:
        """The number of orders with more than two entries."""
        return sum(count > ENTRIES_PER_ORDER for count in self._entries)

    @property
    def holds(self) -> bool:
        """Whether every order was carried out once, and the sum was the same at every cut."""
        is_complete = self.done == len(self._entries)
        return is_complete and not (self.torn or self.doubled or self.wrong_cuts) and self.cuts > 0

    def cut(self, entries: Iterable[Entry]) -> None:
        """Add the entries that were committed up to now: the sum must be the same as before."""
        for entry in entries:
            self._balances[entry.account] += entry.amount
            self._entries[entry.order] += 1
        self.cuts += 1
        self.wrong_cuts += self.total != ACCOUNTS * BALANCE

    def lines(self) -> Iterator[str]:
        """Yield the figures of the verdict."""
        yield f"  orders     {len(self._entries):>9,}"
        yield f"  done once  {self._entries.count(ENTRIES_PER_ORDER):>9,}"
        yield f"  half done  {self.torn:>9,}"
        yield f"  twice      {self.doubled:>9,}"
        yield f"  sum        {self.total:>9,}  of {ACCOUNTS} accounts with {BALANCE:,} each"
        yield f"  added up   {self.cuts:>9,}  times by aiokafka, {self.wrong_cuts:,} wrong"
