"""Orders to transfer money, and the entries that they lead to."""

import json
from random import Random
from typing import NamedTuple

ORDERS = "transfers"
LEDGER = "ledger"
ORDER_PARTITIONS = 4
LEDGER_PARTITIONS = 1
"""One, because a reader sees what is committed partition by partition: a cut through one is a cut through all."""

GROUP = "bank"
ACCOUNTS = 50
BALANCE = 1_000
"""Of each account at the beginning."""

_SEED = 2026
_MOST = 100


class Order(NamedTuple):
    """Money to be transferred."""

    number: int
    payer: int
    payee: int
    amount: int

    def encode(self) -> bytes:
        """As the value of a record."""
        return json.dumps(self._asdict()).encode()

    def entries(self) -> "tuple[Entry, Entry]":
        """What becomes of it in the ledger."""
        return Entry(self.number, self.payer, -self.amount), Entry(self.number, self.payee, self.amount)


class Entry(NamedTuple):
    """A line of the ledger."""

    order: int
    account: int
    amount: int

    def encode(self) -> bytes:
        """As the value of a record."""
        return json.dumps(self._asdict()).encode()


def decode_order(value: bytes) -> Order:
    """The order of a record."""
    return Order(**json.loads(value))


def decode_entry(value: bytes) -> Entry:
    """The entry of a record."""
    return Entry(**json.loads(value))


def made_up_orders(count: int) -> list[Order]:
    """The same ones every time."""
    chance = Random(_SEED)  # noqa: S311 - no secrets
    orders = []
    for number in range(count):
        payer, payee = chance.sample(range(ACCOUNTS), 2)
        orders.append(Order(number, payer, payee, chance.randint(1, _MOST)))
    return orders
