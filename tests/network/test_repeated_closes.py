"""Connections in a row that are lost under Produce requests of a size that the broker never answers."""

from aioproducer._network.repeated_closes import RepeatedCloses

BROKER = "broker 1 at host:9092"


def test_third_close_at_one_size_is_named() -> None:
    closes = RepeatedCloses()

    rows = [closes.lost(BROKER, 1_048_646) for _ in range(4)]

    assert rows[:2] == [None, None]
    assert [(row.request_bytes, row.closes) for row in rows[2:] if row is not None] == [(1_048_646, 3), (1_048_646, 4)]


def test_smallest_request_of_the_row_is_named() -> None:
    """`max_request_size` has to be below it."""
    closes = RepeatedCloses()

    rows = [closes.lost(BROKER, size) for size in (1_048_000, 1_046_600, 1_047_000)]

    assert rows[2] is not None
    assert rows[2].request_bytes == 1_046_600


def test_row_goes_on_when_smaller_requests_are_answered() -> None:
    closes = RepeatedCloses()
    for _ in range(2):
        closes.lost(BROKER, 1_048_000)
        closes.answered(BROKER, 900_000)

    assert closes.lost(BROKER, 1_048_000) is not None


def test_row_ends_when_a_request_as_large_is_answered() -> None:
    closes = RepeatedCloses()
    for _ in range(2):
        closes.lost(BROKER, 1_000)
    closes.answered(BROKER, 1_000)

    assert closes.lost(BROKER, 1_000) is None


def test_close_under_an_answered_size_begins_again() -> None:
    """Three restarts of a broker, with months between them, are not its limit."""
    closes = RepeatedCloses()
    for size in (900_000, 20_000, 15_000):
        row = closes.lost(BROKER, size)
        closes.answered(BROKER, 50_000)

    assert row is None


def test_brokers_have_rows_of_their_own() -> None:
    closes = RepeatedCloses()
    for broker in ("broker 1", "broker 2", "broker 3"):
        assert closes.lost(broker, 1_000) is None
