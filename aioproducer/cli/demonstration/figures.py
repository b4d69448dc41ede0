"""Figures as people read them."""


def milliseconds(seconds: float | None) -> str:
    """A latency: "6.1 ms", "140 ms"; "-" where there is none yet."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"  # noqa: PLR2004 - two digits say enough


def megabytes(size_bytes: float) -> str:
    """An amount or a rate: "4.3 MB", of a million bytes each."""
    return f"{size_bytes / 1e6:,.1f} MB"


def count_of(number: int, thing: str) -> str:
    """A count with its noun: "1 record", "2,512 records"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
