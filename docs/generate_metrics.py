"""Writes `reference/metrics.md` from the fields of `ProducerStatistics` and the texts under them.

Run it after changing a field: `python docs/generate_metrics.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Final

from aioproducer.metrics import ProducerStatistics

PAGE = Path(__file__).parent / "reference" / "metrics.md"

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
So there are no sliding averages, and Kafka's `-rate`, `-avg` and `-max` metrics are represented by their totals.
The last column names the Kafka metric with the same meaning, if there is one (group `producer-metrics`).

| field | type | what it says | Kafka |
| --- | --- | --- | --- |
"""


def render() -> str:
    """Return the whole page."""
    return _INTRODUCTION + "".join(_row(*field) for field in _fields())


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
