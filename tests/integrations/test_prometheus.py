"""Producers as a Prometheus server reads them."""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.openmetrics import parser
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_page
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import BlockingProducer, Producer
from aioproducer._native.measures import OTHER_TOPICS
from aioproducer.integrations.prometheus import ProducerCollector
from aioproducer.testing import FakeCluster
from tests.fakes.producing import cluster_elsewhere

DASHBOARD = Path(__file__).parent.parent.parent / "docs" / "how-to" / "observe_dashboard.json"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """By name, and the labels' values; read from the text, as a server reads it."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def test_scrape_has_totals_topics_nodes_and_histograms(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="web") as producer:
        ProducerCollector(producer, registry=registry)
        await producer.send("orders", b"x" * 100)
        found = samples(registry)

    assert found["kafka_producer_record_send_total", "web"] == 1
    assert found["kafka_producer_topic_record_send_total", "web,orders"] == 1
    assert found["kafka_producer_record_size_bytes_count", "web"] == 1
    assert found["kafka_producer_record_size_bytes_bucket", "web,64.0"] == 0
    assert found["kafka_producer_record_size_bytes_bucket", "web,256.0"] == 1
    assert found["kafka_producer_record_size_bytes_bucket", "web,+Inf"] == 1
    assert sum(value for (name, _), value in found.items() if name == "kafka_producer_node_request_total") >= 2
    assert "kafka_producer_info" in {name for name, _ in found}


async def test_description_has_every_name_of_a_scrape(cluster: FakeCluster) -> None:
    """So a registry refuses a second collector at once, not at the first scrape."""
    async with Producer(cluster.bootstrap_servers) as producer:
        collector = ProducerCollector(producer, registry=None)
        await producer.send("orders", b"x")

        collected = {family.name for family in collector.collect()}
    assert collected == {family.name for family in collector.describe()}


async def test_several_producers_are_in_one_registry(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    async with (
        Producer(cluster.bootstrap_servers, client_id="a") as first,
        Producer(cluster.bootstrap_servers, client_id="b") as second,
        Producer(cluster.bootstrap_servers, client_id="a") as namesake,
    ):
        collector = ProducerCollector(first, second, registry=registry)
        collector.add(namesake)
        collector.add(namesake)
        for producer, count in ((first, 1), (second, 2), (namesake, 3)):
            for _ in range(count):
                await producer.send("orders", b"x")
        found = samples(registry)
        collector.remove(second)
        without = samples(registry)

    name = "kafka_producer_topic_record_send_total"
    assert {labels: value for (of, labels), value in found.items() if of == name} == {
        "a,orders": 1,
        "b,orders": 2,
        "a-2,orders": 3,
    }
    assert (name, "b,orders") not in without


def sent(registry: CollectorRegistry) -> dict[str, float]:
    """Records sent, by the label of the producer."""
    return {
        labels: value
        for (name, labels), value in samples(registry).items()
        if name == "kafka_producer_record_send_total"
    }


async def test_series_belongs_to_one_producer_to_its_end(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    """A label is free again after a scrape without it: then the series of before has ended."""
    made = [Producer(cluster.bootstrap_servers, client_id=name) for name in ("web", "web", "web-2", "web")]
    collector = ProducerCollector(*made[:3], registry=registry)
    for count, producer in enumerate(made, start=1):
        await producer.start()
        for _ in range(count):
            await producer.send("orders", b"x")
    at_first = sent(registry)
    await made[0].close()
    collector.remove(made[0])
    collector.add(made[3])
    instead = sent(registry)
    collector.remove(made[3])
    without = sent(registry)
    collector.add(made[3])
    again = sent(registry)
    for producer in made:
        await producer.close()

    assert at_first == {"web": 1, "web-3": 2, "web-2": 3}
    assert instead == {"web-4": 4, "web-3": 2, "web-2": 3}
    assert without == {"web-3": 2, "web-2": 3}
    assert again == {"web": 4, "web-3": 2, "web-2": 3}


@pytest.mark.parametrize(
    "client_id", ["web", 'a"b', "a\\b", "a\\", "a\\nb", "\u00e9\u2713", "", " ", "{}", 'a,b="c"', '}"', "#", "x" * 300]
)
async def test_page_is_valid_openmetrics_with_any_client_id(
    cluster: FakeCluster, registry: CollectorRegistry, client_id: str
) -> None:
    """By its own parser, which refuses a series that is there twice."""
    async with (
        Producer(cluster.bootstrap_servers, client_id=client_id) as producer,
        Producer(cluster.bootstrap_servers, client_id=client_id) as namesake,
    ):
        ProducerCollector(producer, namesake, registry=registry)
        await producer.send("orders", b"x")
        page = openmetrics_page(registry).decode()  # type: ignore[no-untyped-call]

    families = list(parser.text_string_to_metric_families(page))  # type: ignore[no-untyped-call]
    labels = {each.labels["client_id"] for family in families for each in family.samples}
    assert labels == {client_id, f"{client_id}-2"} if client_id else len(labels) == 2  # two names were generated


async def test_second_collector_of_a_registry_is_refused(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    producer = Producer(cluster.bootstrap_servers)
    ProducerCollector(producer, registry=registry)

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        ProducerCollector(producer, registry=registry)


async def test_producer_that_is_not_started_closed_or_gone(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    producer = Producer(cluster.bootstrap_servers, client_id="short")
    ProducerCollector(producer, registry=registry)
    before = samples(registry)
    async with producer:
        await producer.send("orders", b"x")
    closed = samples(registry)
    del producer
    gc.collect()

    assert before == {}
    assert closed["kafka_producer_record_send_total", "short"] == 1
    assert samples(registry) == {}


@pytest.mark.slow
async def test_scrape_from_another_thread_while_the_producer_closes(
    cluster: FakeCluster, registry: CollectorRegistry
) -> None:
    is_over, seen, errors = threading.Event(), [], []
    collector = ProducerCollector(registry=registry)

    def scrape() -> None:
        while not is_over.is_set():
            try:
                seen.append(samples(registry))
            except Exception as error:  # noqa: BLE001  # any is the defect looked for
                errors.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for _ in range(3):
        async with Producer(cluster.bootstrap_servers) as producer:
            collector.add(producer)
            for number in range(50):
                await producer.enqueue(f"topic-{number}", b"x")
    is_over.set()
    await asyncio.to_thread(thread.join)

    assert errors == []
    assert any(seen)


async def test_longest_topic_name_is_a_label(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    topic = "t" * 249
    async with Producer(cluster.bootstrap_servers, client_id="c") as producer:
        ProducerCollector(producer, registry=registry)
        await producer.send(topic, b"x")

        assert samples(registry)["kafka_producer_topic_record_send_total", f"c,{topic}"] == 1


async def test_topics_past_the_limit_share_a_label(cluster: FakeCluster, registry: CollectorRegistry) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="c") as producer:
        ProducerCollector(producer, registry=registry)
        for number in range(1_002):
            producer._running.measures.batch_sent(f"t{number}", 1, 100, 100, 0.0)  # type: ignore[union-attr]  # noqa: SLF001  # as 1,002 batches would
        found = samples(registry)

    name = "kafka_producer_topic_record_send_total"
    assert len([labels for of, labels in found if of == name]) == 1_001
    assert found[name, f"c,{OTHER_TOPICS}"] == 2


@pytest.mark.parametrize("wrong", [None, "localhost:9092", Producer])
def test_wrong_argument_is_named(wrong: object, registry: CollectorRegistry) -> None:
    with pytest.raises(TypeError, match=r"producers\[0\] must be a Producer or a BlockingProducer, not "):
        ProducerCollector(wrong, registry=registry)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="producer must be a Producer"):
        ProducerCollector(registry=registry).add(wrong)  # type: ignore[arg-type]


def test_registry_of_another_type_is_named() -> None:
    with pytest.raises(TypeError, match="registry must be a CollectorRegistry or None, not int"):
        ProducerCollector(registry=5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_blocking_producer_is_scraped_over_http(registry: CollectorRegistry) -> None:
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with cluster_elsewhere() as cluster, BlockingProducer(cluster.bootstrap_servers) as producer:
            ProducerCollector(producer, registry=registry)
            producer.send("orders", b"x")
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
                text = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert 'kafka_producer_topic_record_send_total{client_id="' in text


def expressions(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (text for name, text in node.items() if name == "expr")
        yield from (text for child in node.values() for text in expressions(child))
    elif isinstance(node, list):
        yield from (text for child in node for text in expressions(child))


def test_dashboard_reads_names_that_exist() -> None:
    described = ProducerCollector(registry=None).describe()
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    names = {f"{family.name}{end}" for family in described for end in ends.get(family.type, [""])}
    used = {
        word
        for text in expressions(json.loads(DASHBOARD.read_text("utf-8")))
        for word in text.replace("{", " ").replace("(", " ").replace("[", " ").split()
        if word.startswith("kafka_producer")
    }

    assert len(used) >= 15
    assert used - names == set()
