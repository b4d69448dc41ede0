"""How far a query is behind."""

from types import SimpleNamespace

from aioproducer.spark import offsets_behind_latest

END = '{"t": {"0": 5, "1": 10}}'
LATEST = '{"t": {"0": 8, "1": 10}, "new": {"0": 4}}'
BEHIND = {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "3", "avgOffsetsBehindLatest": "1.5"}


def test_query_is_behind_as_spark_counts() -> None:
    """By partition; a partition that no batch has read yet is not counted."""
    assert offsets_behind_latest(SimpleNamespace(endOffset=END, latestOffset=LATEST)) == BEHIND


def test_progress_as_json_is_read_too() -> None:
    source = {"endOffset": {"t": {"0": 5, "1": 10}}, "latestOffset": {"t": {"0": 8, "1": 10}}}
    assert offsets_behind_latest(source) == BEHIND


def test_nothing_is_said_of_other_offsets() -> None:
    """Nor before the first batch."""
    for end, latest in (("null", LATEST), (END, "null"), ("3", "4"), (None, None), ("{}", "{}"), ('{"a": 1}', LATEST)):
        assert offsets_behind_latest({"endOffset": end, "latestOffset": latest}) == {}
