"""The demo's check: each kind of fault is found, and nothing else is called one."""

import random

import pytest

from examples.demo.delivery_check import DeliveryCheck, ReadRecord, SentRecord, headers_of

KEYS = (b"N1", b"N2", None)
SENT = [SentRecord(KEYS[row % 3], b'{"flight":%d}' % row, headers_of(b"UA", row)) for row in range(30)]


def read_all() -> list[ReadRecord]:
    return [ReadRecord(row % 3, *record) for row, record in enumerate(SENT)]


def check_delivery(sent: list[SentRecord], read: list[ReadRecord]) -> DeliveryCheck:
    check = DeliveryCheck(sent)
    check.add(read)
    check.finish()
    return check


def test_everything_sent_and_read_holds() -> None:
    report = check_delivery(SENT, read_all())

    assert report.holds
    assert report.read == 30


def test_nothing_sent_and_nothing_read_holds() -> None:
    assert check_delivery([], []).holds


def test_mixing_of_partitions_does_not_matter() -> None:
    read = sorted(read_all(), key=lambda record: record.partition)

    assert check_delivery(SENT, read).holds


def without(row: int) -> list[ReadRecord]:
    return [record for number, record in enumerate(read_all()) if number != row]


def swapped(one: int, other: int) -> list[ReadRecord]:
    read = read_all()
    read[one], read[other] = read[other], read[one]
    return read


@pytest.mark.parametrize(
    "kind, read, rows",
    [
        ("missing", without(7), [7]),
        ("twice", [*read_all(), read_all()[7]], [7]),  # read again later it is doubled, not out of order
        ("disorder", swapped(3, 6), [3]),  # of the same key
        ("disorder", [*read_all()[:9], read_all()[9]._replace(partition=5), *read_all()[10:]], [9, 12]),
    ],
    ids=["missing", "doubled", "swapped", "key in two partitions"],
)
def test_one_fault_is_found(kind: str, read: list[ReadRecord], rows: list[int]) -> None:
    report = check_delivery(SENT, read)

    assert faults(report) == {kind}
    assert (report.faults[kind].count, report.faults[kind].rows) == (len(rows), rows)


def test_two_swapped_without_a_key() -> None:
    """There is no order to keep."""
    assert check_delivery(SENT, swapped(2, 5)).holds


@pytest.mark.parametrize(
    "change", [{"value": b"{}"}, {"value": None}, {"key": b"N9"}, {"key": None}, {"headers": (("row", b"7"),)}], ids=str
)
def test_one_altered(change: "dict[str, object]") -> None:
    read = read_all()
    read[7] = ReadRecord(**(read[7]._asdict() | change))

    report = check_delivery(SENT, read)

    assert (report.faults["altered"].count, report.faults["altered"].rows) == (1, [7])
    assert faults(report) == {"altered"}


@pytest.mark.parametrize("row", [b"30", b"-1", b"x", b"", None], ids=str)
def test_one_never_sent(row: bytes | None) -> None:
    stranger = ReadRecord(0, b"N1", b"{}", (("row", row),))

    report = check_delivery(SENT, [*read_all(), stranger, stranger._replace(headers=())])

    assert report.faults["unknown"].count == 2
    assert faults(report) == {"unknown"}


def test_many_faults_are_counted_and_few_are_shown() -> None:
    report = check_delivery(SENT, [])

    assert (report.faults["missing"].count, report.faults["missing"].rows) == (30, [0, 1, 2, 3, 4])


def test_any_single_loss_is_found() -> None:
    lost = [check_delivery(SENT, [record for record in read_all() if record != gone]) for gone in read_all()]

    assert [report.faults["missing"].rows for report in lost] == [[row] for row in range(30)]


def test_shuffled_key_is_out_of_order() -> None:
    read = read_all()
    random.Random(1).shuffle(read)

    report = check_delivery(SENT, read)

    assert faults(report) == {"disorder"}


def faults(report: DeliveryCheck) -> set[str]:
    return {kind for kind, fault in report.faults.items() if fault.count}


def test_lines_name_faults_and_rows() -> None:
    read = [record for record in read_all() if record.headers[1][1] not in {b"7", b"9"}]

    assert list(check_delivery(SENT, read).lines()) == [
        "  missing            2  first at rows 7, 9",
        "  twice              0",
        "  altered            0",
        "  disorder           0",
    ]
