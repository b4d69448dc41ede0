"""Writes `reference/metrics.md`: the fields of `ProducerStatistics`, and the metrics of Kafka's own producer.

Run it after changing a field or a name: `python docs/generate_metrics.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Final

from aioproducer._producer.metric_groups import APP, COUNT, NODE, OWN, PRODUCER, TOPIC
from aioproducer._producer.producer_metrics import HISTOGRAMS, MEANINGS, OWN_TABLE, reason_not_read
from aioproducer.metrics import ProducerStatistics

PAGE = Path(__file__).parent / "reference" / "metrics.md"
NAMES = Path(__file__).parent.parent / "tests" / "protocol" / "golden" / "metric_names.json"
"""Made by Kafka's own producer; see make_metric_names.jsh beside it."""

_KAFKA: Final = re.compile(r"\s*Kafka: (?P<name>[a-z0-9-]+)(?P<rest>[^.]*)\.?")

_INTRODUCTION = """\
<!-- Written by docs/generate_metrics.py from the field texts of ProducerStatistics: change them there. -->

# Metrics

`producer.statistics()` returns a frozen `ProducerStatistics`: counters and gauges of the moment of the call.
They cost nothing per record; the call looks at each open batch.

```python
async with Producer("localhost:9092") as producer:
    await producer.send("orders", b"...")
    statistics = producer.statistics()
    print(statistics.records_acknowledged, statistics.buffer_available_bytes)
```

Totals only grow, so a collector can compute rates from two readings, better than a client could.
Kafka's `-rate`, `-avg` and `-max` metrics, which are of the last minute, are among [`metrics()`](#kafkas-names).
The last column names the Kafka metric with the same meaning, if there is one (group `producer-metrics`).

| field | type | what it says | Kafka |
| --- | --- | --- | --- |
"""


_HEAD: Final = "| name | read here |\n| --- | --- |\n"

_KAFKA_INTRODUCTION = """
## Kafka's names

`producer.metrics()` returns a list of `Metric` (name, group, tags, value, kind) under the names of Kafka's producer.
Any thread may call it. Of the {names} names that Kafka 4.3.1's producer has after a send, {read} are read here.
They have Kafka's meaning, which its documentation says, except where the row says another.
As in Kafka, names that end in `-avg`, `-max` and `-rate` are of the last `metrics_num_samples` windows of
`metrics_sample_window_ms`, with the defaults the last minute, and averages and maxima without a value are NaN.
A value counts for the windows' length, and in both up to one sample window longer: Kafka's windows begin with a value,
and an idle producer here reads its totals seldom.
After 1,000 topics, all further ones share the tag `(other topics)`, and after 1,000 nodes, `(other nodes)`.

```python
async with Producer("localhost:9092") as producer:
    await producer.send("orders", b"...")
    totals = {{(metric.name, metric.tags.get("topic")): metric.value for metric in producer.metrics()}}
    print(totals["record-send-total", "orders"])
```
"""

_OWN_INTRODUCTION = """
### {group}

What Kafka has no name for. Those in `-bytes` and `-seconds`, `records-per-request` and `compression-ratio` are
histograms with fixed buckets (`HistogramValue`). Nothing is counted per record in Python; sizes are counted natively.

"""


_OUTBOX_INTRODUCTION = """
## Outbox and spool

`ProducerCollector(relay)` of [an outbox](../how-to/outbox.md) shows the first ones to Prometheus.
`ProducerCollector(spool)` of [a spool](../how-to/spool.md) shows all: those of its relay, and its own.
Totals count from the start of the relay or spool, except that of dropped records.

| metric | type | what it says |
| --- | --- | --- |
"""

_OUTBOX: Final = {
    "outbox_rows_sent_total": "Rows that were committed in Kafka.",
    "outbox_batches_sent_total": "Transactions, also those whose rows were all parked.",
    "outbox_rows_parked_total": "Rows that this relay has parked.",
    "outbox_retries_total": "Attempts that ended with an error and were repeated.",
    "outbox_rows_waiting": "Rows in the table, up to 100,000.",
    "outbox_oldest_age_seconds": "Age of the oldest row; absent without rows. Alert on it.",
    "outbox_is_working": "1 if this relay works; 0 if another one does, or this one cannot.",
    "outbox_shards_working": "Shards whose rows this relay sends; 1 for an outbox that is not divided.",
    "spool_records_stored_total": "Records that the disk has; sent since or not.",
    "spool_records_refused_total": "Records for which there was no room.",
    "spool_records_dropped_total": 'Records dropped unsent since the file was made, with `when_full="drop oldest"`.',
    "spool_records_waiting": "Records in the file when it was looked at last, at most five seconds ago.",
    "spool_bytes_waiting": "Bytes that records in the file, also parked ones, count against `max_bytes`.",
}
"""By names, which `Relay.metrics` and `Spool.metrics` write with hyphens."""

_OUTBOX_END = """
Rows that wait, and the age of the oldest, are counted every third of `lease_s`, also while the relay cannot send.
A relay that stands by has neither.
"""


def render() -> str:
    """Return the whole page."""
    return _INTRODUCTION + "".join(_row(*field) for field in _fields()) + _outbox_names() + _kafka_names()


def _outbox_names() -> str:
    return _OUTBOX_INTRODUCTION + "".join(_outbox_row(*each) for each in _OUTBOX.items()) + _OUTBOX_END


def _outbox_row(name: str, meaning: str) -> str:
    kind = "counter" if name.endswith("_total") else "gauge"
    return f"| `kafka_producer_{name}` | {kind} | {meaning} |\n"


def names_of_kafka() -> list[tuple[str, str, list[str]]]:
    """Return (group, name, tags) of each metric of Kafka's producer."""
    return [tuple(row) for row in json.loads(NAMES.read_text("utf-8"))]


def _kafka_names() -> str:
    rows = {(group, name): reason_not_read(group, name) for group, name, _ in names_of_kafka()}
    read = sum(reason is None for reason in rows.values())
    parts = [_KAFKA_INTRODUCTION.format(names=len(rows), read=read)]
    for group, tags in {PRODUCER: "", NODE: ", `node-id`", TOPIC: ", `topic`", APP: "", COUNT: ""}.items():
        parts.append(f"\n### {group}\n\nTags: `client-id`{tags}.\n\n{_HEAD}")
        parts += [_kafka_row(name, _read(of, name, reason)) for (of, name), reason in rows.items() if of == group]
    own = "".join(f"- `{name}`\n" for name in (*OWN_TABLE, *HISTOGRAMS))
    return "".join(parts) + _OWN_INTRODUCTION.format(group=OWN) + own


def _read(group: str, name: str, reason: str | None) -> str:
    if reason is not None:
        return f"no: {reason}"
    meaning = MEANINGS.get((group, name))
    return "yes" if meaning is None else f"yes; {meaning}"


def _kafka_row(name: str, read: str) -> str:
    return f"| `{name}` | {read} |\n"


def _row(name: str, kind: str, text: str) -> str:
    match = _KAFKA.search(text)
    kafka = f"`{match['name']}`{match['rest']}" if match else ""
    said = _KAFKA.sub("", text).strip()
    return f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` | {said} | {kafka} |\n"


def _fields() -> list[tuple[str, str, str]]:
    """Return (name, type, text) of each field, in order."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(ProducerStatistics))).body
    assert isinstance(definition, ast.ClassDef)
    found = []
    for statement, following in pairwise([*definition.body, ast.Pass()]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = " ".join(str(following.value.value).split())
            found.append((statement.target.id, ast.unparse(statement.annotation), text))
    return found


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), "utf-8")
