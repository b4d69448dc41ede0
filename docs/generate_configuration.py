"""Writes `reference/configuration.md` from the fields of `ProducerConfig` and the texts under them.

Run it after changing an option: `python docs/generate_configuration.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aioproducer.config import producer_config
from aioproducer.config._json_schema import field_texts
from aioproducer.config._option_names import kafka_name
from aioproducer.config.producer_options import DURABLE, LOW_LATENCY, THROUGHPUT

PAGE = Path(__file__).parent / "reference" / "configuration.md"

_INTRODUCTION = """\
<!-- Written by docs/generate_configuration.py from the field texts of ProducerConfig: change them there. -->

# Configuration

Every option is a keyword argument of `Producer` and of `ProducerConfig`:

```python
Producer("localhost:9092", linger_ms=20, compression_type="zstd")
```

Names are Kafka's with `_` for `.`, so Kafka's own documentation applies;
a dict may use Kafka's spelling, as in `ProducerConfig.from_kafka_properties({"linger.ms": "20"})`.
Defaults are those of Kafka 4.x except for `batch_size`.
All values are checked in the constructor, before any I/O: an invalid value raises `ConfigurationError`
(a `ValueError`), a value of the wrong type or an unknown name `ConfigurationTypeError` (also a `TypeError`).
Times are whole milliseconds, sizes bytes.

As in Kafka, some values change because of others; `ProducerConfig.adjustments` says which and why.

## Presets

`ProducerConfig.low_latency(...)`, `.throughput(...)` and `.durable(...)` begin with other values than the defaults;
options of your own take precedence. Each takes the place of the servers:

```python
from aioproducer import Producer, ProducerConfig

async with Producer(ProducerConfig.throughput("localhost:9092", client_id="reports")) as producer:
    await producer.send("orders", b"tea")
```

_PRESETS_
What each brings is measured beside the defaults: [performance](../explanation/performance.md#in-short),
scenario `presets` (`nox -s bench -- --only presets`).

- `low_latency`: a record that no one awaits leaves at once. An awaited one does so with the defaults already.
- `throughput`: few, large, compressed batches. It pays off where the network or the brokers' disks are the limit,
  and costs memory, and processor time, which for large batches is that of a thread.
- `durable`: records wait for 15 minutes instead of two, and an `acks` that would weaken them is an error.
  The defaults deliver as safely (`acks="all"`, idempotence).
  What waits must fit into `buffer_memory`: its 32 MiB hold about 160 seconds of 200 records of 1 kB per second.
  Further calls of `enqueue` wait then, up to `max_block_ms`:
  [size it for your outage](../how-to/survive_an_outage.md).

## JSON Schema

`ProducerConfig.json_schema()` is a schema (draft 2020-12) of the options, with types, ranges, defaults and the texts
of this page, for editors and validators. Secrets are `writeOnly`.
It describes what `from_kafka_properties` takes, under Python's names:

```python
import json

from aioproducer import ProducerConfig

print(json.dumps(ProducerConfig.json_schema(), indent=2)[:100])
config = ProducerConfig.from_kafka_properties({"bootstrap_servers": "localhost:9092", "linger_ms": 20})
```

Options that only Python objects can be, `ssl_context` and `sasl_token_provider`, are not in it.

## Environment variables

`ProducerConfig.from_environment()` reads `AIOPRODUCER_BOOTSTRAP_SERVERS=localhost:9092`, `AIOPRODUCER_LINGER_MS=20`
and so on: the prefix, then the option in capitals, with values as in property files.
`from_environment("ORDERS_KAFKA_")` has another prefix.
A variable with the prefix that is not an option is an error.

<!--
```python
import os

os.environ["AIOPRODUCER_BOOTSTRAP_SERVERS"] = "localhost:9092"
```
-->

```python
from aioproducer import Producer, ProducerConfig

async with Producer(ProducerConfig.from_environment()) as producer:
    await producer.send("orders", b"tea")
```

<!--
```python
del os.environ["AIOPRODUCER_BOOTSTRAP_SERVERS"]
```
-->

## Property files

`ProducerConfig.from_properties_file(path)` reads the configuration file of a Java producer:

```properties
bootstrap.servers=localhost:9092
compression.type=zstd
value.serializer=org.apache.kafka.common.serialization.StringSerializer
partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner
```

<!--
```python
from pathlib import Path

Path("producer.properties").write_text(
    "bootstrap.servers=localhost:9092\\nvalue.serializer=org.apache.kafka.common.serialization.StringSerializer\\n"
)
```
-->

```python
from aioproducer import Producer, ProducerConfig

config = ProducerConfig.from_properties_file("producer.properties")
async with Producer(config.replace(client_id="billing")) as producer:
    await producer.send("orders", "tea")
```

- The file is read as `java.util.Properties.load` reads it.
  Text beyond ASCII is UTF-8 or, if it is not valid UTF-8, ISO-8859-1.
  Java always reads ISO-8859-1, so `notes` names such options.
  If the file also configures a Java program, write `\\u00e9`.
- Kafka's own serializers (except `ListSerializer`) and partitioners are known by the names of their Java classes.
  Other classes cannot be loaded: leave them out, and pass an object to `replace`.
- Options of consumers, Kafka Streams and schema registries are ignored, as Java does.
  `ProducerConfig.notes` names them, and the event `option_not_used` at start.
- Beside a `sasl_token_provider`, `extension_...` of a JAAS text is sent with its tokens.
  What the provider replaces is in `notes`; a client id, scope or URL that it contradicts is refused.
- Other options that do not exist here are refused, all in one error,
  unless their value asks for the behaviour of this producer,
  such as `metadata.recovery.strategy=rebootstrap`.
- For names of librdkafka's, aiokafka's and kafka-python's, the error names the option to use,
  or says why there is none.
- Errors name the file, the line and the option. Values of refused options are not shown, as they may be passwords.
"""

_NOT_KAFKAS = frozenset({"close_timeout_ms", "exit_flush_timeout_ms", "max_waiting_records", "max_waiting_bytes"})
_OTHER_KAFKA_NAMES = {"partitioner": "partitioner.class", "interceptors": "interceptor.classes"}
_OTHER_DEFAULTS = {"max_waiting_bytes": "`None`", "acks": '`"all"`', "client_id": "`producer-1`, ..."}


def render() -> str:
    """Return the whole page."""
    introduction = _INTRODUCTION.replace("_PRESETS_\n", f"{_presets()}\n")
    texts = field_texts(producer_config, {"bootstrap_servers", *producer_config.option_kinds()})
    return "\n".join([introduction, *(_section(name, text) for name, text in texts)])


def _presets() -> str:
    presets = {"low_latency": LOW_LATENCY, "throughput": THROUGHPUT, "durable": DURABLE}
    rows = [
        f"| `{name}` | {', '.join(f'`{option}={value!r}`' for option, value in preset.items())} |"
        for name, preset in presets.items()
    ]
    return "\n".join(["| preset | sets |", "|---|---|", *rows, ""])


def _section(name: str, text: str) -> str:
    facts = " · ".join(f"*{label}:* {value}" for label, value in _facts(name))
    return f"## `{name}`\n\n{facts}\n\n{text}\n"


def _facts(name: str) -> Iterator[tuple[str, str]]:
    if name not in _NOT_KAFKAS:
        yield "Kafka", f"`{_OTHER_KAFKA_NAMES.get(name, kafka_name(name))}`"
    kind = producer_config.option_kinds().get(name)
    if kind is None:
        yield "required", "yes"
        return
    yield "default", _OTHER_DEFAULTS.get(name, f"`{producer_config.option_defaults()[name]!r}`")
    yield "allowed", kind.allowed


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render())
