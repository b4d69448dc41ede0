"""Whether the ledger adds up: decided without brokers."""

import json

from examples.demo.transfers import ACCOUNTS, BALANCE, Entry, LedgerCheck, Order, encode, made_up_orders

ORDERS = made_up_orders(3)
ALL = ACCOUNTS * BALANCE


def checked(*numbers: int) -> LedgerCheck:
    entries = [entry for order in ORDERS for entry in order.entries()]
    check = LedgerCheck(len(ORDERS))
    check.cut(entries[number] for number in numbers)
    return check


def test_complete_ledger_holds() -> None:
    check = checked(0, 1, 2, 3, 4, 5)

    assert (check.holds, check.done, check.total, check.wrong_cuts) == (True, 3, ALL, 0)


def test_part_of_the_ledger_adds_up_and_is_not_complete() -> None:
    check = checked(0, 1)

    assert (check.holds, check.done, check.total, check.wrong_cuts) == (False, 1, ALL, 0)


def test_torn_order_is_found() -> None:
    check = checked(0, 1, 2, 3, 4)

    assert (check.holds, check.torn, check.wrong_cuts) == (False, 1, 1)
    assert check.total != ALL


def test_order_carried_out_twice_is_found() -> None:
    check = checked(0, 1, 2, 3, 4, 5, 0, 1)

    assert (check.holds, check.doubled, check.wrong_cuts) == (False, 1, 0)


def test_orders_and_entries_survive_json() -> None:
    order = ORDERS[0]

    assert Order(*json.loads(encode(order))) == order
    assert [Entry(*json.loads(encode(entry))) for entry in order.entries()] == list(order.entries())


def test_lines_fit_a_narrow_terminal() -> None:
    assert max(map(len, checked(0, 1).lines())) <= 60
