"""Whether the ledger adds up: decided without brokers."""

from aioproducer.cli.demonstration.transfers.ledger_check import LedgerCheck
from aioproducer.cli.demonstration.transfers.orders import (
    ACCOUNTS,
    BALANCE,
    decode_entry,
    decode_order,
    made_up_orders,
)
from aioproducer.cli.demonstration.transfers.show import TransferVerdict
from aioproducer.cli.demonstration.transfers.verdict_text import transfer_lines

ORDERS = made_up_orders(3)
ALL = ACCOUNTS * BALANCE


def checked(*given: int) -> LedgerCheck:
    """A check that was given entries by number, two for each order, and then made a cut."""
    entries = [entry for order in ORDERS for entry in order.entries()]
    check = LedgerCheck(len(ORDERS))
    check.add(entries[number] for number in given)
    check.cut()
    return check


def test_whole_ledger_holds() -> None:
    """Each order once; the sum is what it was."""
    report = checked(0, 1, 2, 3, 4, 5).report()

    assert (report.holds, report.done, report.total, report.wrong_cuts) == (True, 3, ALL, 0)


def test_part_of_it_adds_up_and_is_not_complete() -> None:
    """As in the middle of the demo."""
    report = checked(0, 1).report()

    assert (report.holds, report.done, report.total, report.wrong_cuts) == (False, 1, ALL, 0)


def test_torn_order_is_found() -> None:
    """One entry alone: the sum is wrong, at that cut and ever after."""
    report = checked(0, 1, 2, 3, 4).report()

    assert (report.holds, report.torn, report.wrong_cuts) == (False, 1, 1)
    assert report.total != ALL


def test_order_carried_out_twice_is_found() -> None:
    """Although the sum is right."""
    report = checked(0, 1, 2, 3, 4, 5, 0, 1).report()

    assert (report.holds, report.doubled, report.wrong_cuts) == (False, 1, 0)


def test_orders_and_entries_are_read_as_written() -> None:
    """They go through Kafka as JSON."""
    order = ORDERS[0]

    assert decode_order(order.encode()) == order
    assert [decode_entry(entry.encode()) for entry in order.entries()] == list(order.entries())


def test_verdict_says_what_was_not_shown() -> None:
    """A demo in which nobody died shows nothing, and no line is wider than a small terminal."""
    report = checked(0, 1, 2, 3, 4, 5).report()
    passed, nobody = TransferVerdict(report, 1.5, 2), TransferVerdict(report, None, None)

    assert next(transfer_lines(passed)) == "PASSED: every order once, and the sum was constant."
    assert next(transfer_lines(nobody)) == "FAILED: the worker or a broker was not killed."
    assert max(map(len, transfer_lines(passed))) <= 60
