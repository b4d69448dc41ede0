"""Which runs count: the raw socket's rows decide."""

from aioproducer.cli.benchmark.figures import Row
from aioproducer.cli.benchmark.steadiness import calmest, is_steady, movement


def attempt(*raw_rates: float) -> list[Row]:
    """Rows of a run in which the raw socket had these figures, and another client moved wildly."""
    return [
        Row("raw socket", "defaults", {"records_per_s": list(raw_rates), "cpu_us_per_record": [1.0, 9.0]}),
        Row("aioproducer", "defaults", {"records_per_s": [1.0, 100.0]}),
    ]


def test_run_counts_while_the_raw_socket_moves_little() -> None:
    """30 % of its median are allowed; what other clients do is their figure."""
    assert is_steady(attempt(85.0, 100.0, 115.0))
    assert not is_steady(attempt(84.0, 100.0, 115.0))


def test_one_round_counts() -> None:
    """There is nothing to compare it with."""
    assert is_steady(attempt(100.0))


def test_run_without_a_raw_socket_counts() -> None:
    """Nothing tells what the machine did."""
    assert is_steady([Row("aioproducer", "defaults", {"records_per_s": [1.0, 100.0]})])


def test_worst_row_of_the_raw_socket_decides() -> None:
    """Rates and latencies alike."""
    rows = [
        Row("raw socket", "defaults", {"records_per_s": [100.0, 101.0]}),
        Row("raw socket", "linger 0", {"p50_us": [100.0, 300.0], "p99_us": [1.0, 1000.0]}),
    ]

    assert movement(rows) == 1.0


def test_calmest_attempt_is_reported() -> None:
    """When none was steady."""
    attempts = [attempt(50.0, 100.0), attempt(60.0, 100.0), attempt(40.0, 100.0)]

    assert calmest(attempts) is attempts[1]
