"""The scenarios of the benchmark: which clients do what, and how their figures compare.

Numbers of records are chosen so that one run of a client takes a few seconds.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.brokers import KAFKA_VERSION, REAL_PROPERTIES, BrokerUnderTest, embedded_broker
from tests.benchmarks.job import Job
from tests.benchmarks.outbox_scenario import outbox
from tests.benchmarks.report import OURS, Comparison, Row, ScenarioReport, median_of, ratio
from tests.benchmarks.spark_scenario import spark
from tests.benchmarks.worker import WorkerError, failure_text, python_process

RAW_SOCKET, JAVA, CONFLUENT, AIOKAFKA = "raw socket", "Java producer", "confluent-kafka", "aiokafka"
CONFLUENT_IN_ASYNCIO = "confluent-kafka in asyncio"
CPU = "cpu_us_per_record"

ENQUEUE = {
    # client -> work, records of a full run, of a quick run
    OURS: ("ours.enqueue", 4_000_000, 50_000),
    RAW_SOCKET: ("raw_socket.enqueue", 6_000_000, 50_000),
    JAVA: ("java.enqueue", 2_000_000, 50_000),
    CONFLUENT: ("confluent.enqueue_with_callback", 1_200_000, 20_000),
    "confluent-kafka, no callback": ("confluent.enqueue", 2_000_000, 50_000),
    AIOKAFKA: ("aiokafka.enqueue_with_results", 150_000, 5_000),
    "aiokafka, no results": ("aiokafka.enqueue", 150_000, 5_000),
    "kafka-python": ("kafka_python.enqueue", 60_000, 4_000),
}
BATCH_SIZES = {"defaults": None, "256 KiB": 262_144}
"""Variant -> batch size of every client; None for its own default."""
LARGEST, LARGEST_BATCH = "1 MB", 1_000_000
"""As large as a broker takes, less some bytes; measured only for this producer and the raw socket."""


async def enqueue(bench: Bench) -> ScenarioReport:
    """Measure how many records each client gets acknowledged, and what a record costs."""
    clients = [client for client in ENQUEUE if client != JAVA or bench.java_jars]
    contestants = [
        Contestant(client, variant, _enqueue_job(bench, client, batch_size))
        for variant, batch_size in BATCH_SIZES.items()
        for client in clients
    ]
    contestants += [
        Contestant(client, LARGEST, _enqueue_job(bench, client, LARGEST_BATCH)) for client in (OURS, RAW_SOCKET)
    ]
    rows = await bench.measure(contestants)
    comparisons = [Comparison(f"{LARGEST}: rate / {RAW_SOCKET}", _rate_ratio(rows, LARGEST, RAW_SOCKET))]
    for variant in BATCH_SIZES:
        comparisons += [
            Comparison(f"{variant}: rate / {peer}", _rate_ratio(rows, variant, peer))
            for peer in (CONFLUENT, AIOKAFKA, JAVA, RAW_SOCKET)
        ]
        cpu = ratio(median_of(rows, OURS, variant, CPU), median_of(rows, CONFLUENT, variant, CPU))
        comparisons.append(Comparison(f"{variant}: CPU / {CONFLUENT}", cpu))
    notes = [] if bench.java_jars else ["without the Java producer, which needs Java and Maven"]
    return ScenarioReport("enqueue", "Enqueue in a loop, then flush: acknowledged records", rows, comparisons, notes)


def _enqueue_job(bench: Bench, client: str, batch_size: int | None) -> Job:
    work, full, quick = ENQUEUE[client]
    # the JVM compiles hot code while it runs, so it needs a longer warm-up
    warmup = bench.size(600_000, 20_000) if client == JAVA else bench.size(5_000, 1_000)
    return Job(work=work, records=bench.size(full, quick), warmup_records=warmup, batch_size=batch_size)


TEXT = "str, key, 2 headers"
HOOKS = {
    # variant -> work
    "plain bytes": "plain",
    "partitioner": "partitioner",
    "interceptor": "interceptor",
    ".encode() by the caller": "text_by_caller",
    "value_serializer=str.encode": "text_by_serializer",
    "typed topic value=str": "text_by_typed_topic",
    TEXT: "text_key_and_headers",
    "orjson by the caller": "json_by_caller",
    "value_serializer=orjson.dumps": "json_by_serializer",
}
SAME_WORK_BY_CALLER = {
    "value_serializer=str.encode": ".encode() by the caller",
    "typed topic value=str": ".encode() by the caller",
    "value_serializer=orjson.dumps": "orjson by the caller",
}


async def hooks(bench: Bench) -> ScenarioReport:
    """Measure user code per record inside the producer, the same work by the caller, and by confluent-kafka."""
    job = Job(work="", records=bench.size(1_000_000, 20_000), warmup_records=bench.size(5_000, 1_000))
    contestants = [
        Contestant(OURS, variant, replace(job, work=f"ours_with_hooks.{work}")) for variant, work in HOOKS.items()
    ]
    contestants.append(Contestant(CONFLUENT, TEXT, replace(job, work="confluent.enqueue_text")))
    rows = await bench.measure(contestants)
    comparisons = [
        Comparison(f"{variant}: rate / {caller}", ratio(median_of(rows, OURS, variant), median_of(rows, OURS, caller)))
        for variant, caller in SAME_WORK_BY_CALLER.items()
    ]
    comparisons.append(Comparison(f"{TEXT}: rate / {CONFLUENT}", _rate_ratio(rows, TEXT, CONFLUENT)))
    plain = median_of(rows, OURS, "plain bytes", CPU)
    comparisons += [
        Comparison(f"{variant}: CPU / plain", ratio(median_of(rows, OURS, variant, CPU), plain))
        for variant in ("partitioner", "interceptor")
    ]
    return ScenarioReport("hooks", "Serializers, partitioner, interceptor, typed topic", rows, comparisons)


TUNED = 262_144
"""Batch size in bytes of the second variant of `arrow` that sends."""
ARROW = {
    # variant -> work, batch size
    "append: send_many": ("ours_with_arrow.append_lists", None),
    "append: send_arrow": ("ours_with_arrow.append_batches", None),
    "append with keys: send_many": ("ours_with_arrow.append_lists_with_keys", None),
    "append with keys: send_arrow": ("ours_with_arrow.append_batches_with_keys", None),
    "defaults: await enqueue": ("ours.enqueue", None),
    "defaults: send_arrow": ("ours_with_arrow.send_batches", None),
    "256 KiB: await enqueue": ("ours.enqueue", TUNED),
    "256 KiB: send_arrow": ("ours_with_arrow.send_batches", TUNED),
}
SAME_ROWS_OTHERWISE = {
    "append: send_arrow": "append: send_many",
    "append with keys: send_arrow": "append with keys: send_many",
    "defaults: send_arrow": "defaults: await enqueue",
    "256 KiB: send_arrow": "256 KiB: await enqueue",
}


async def arrow(bench: Bench) -> ScenarioReport:
    """Measure what a row of an Arrow batch costs to append and to send, and the same row otherwise."""

    def job(work: str, batch_size: int | None) -> Job:
        return Job(
            work=work,
            partitions=64 if work.endswith(("append_lists", "append_batches")) else 4,  # so that no batch gets full
            records=bench.size(1_000_000, 20_000),
            warmup_records=bench.size(5_000, 1_000),
            batch_size=batch_size,
        )

    rows = await bench.measure([Contestant(OURS, variant, job(*work)) for variant, work in ARROW.items()])
    comparisons = [
        Comparison(f"{variant}: CPU / {of}", ratio(*(median_of(rows, OURS, each, CPU) for each in (variant, of))))
        for variant, of in SAME_ROWS_OTHERWISE.items()
    ]
    return ScenarioReport("arrow", "Rows of Arrow batches", rows, comparisons)


AWAITED = {
    # client -> work, records of a full run by fewer than 1,000 tasks and by more, of a quick run
    AIOKAFKA: ("aiokafka.await_sends", 60_000, 80_000, 5_000),
    CONFLUENT_IN_ASYNCIO: ("confluent_in_asyncio.await_sends", 60_000, 400_000, 5_000),
}
MANY_TASKS = 1_000
LINGERS_OF_FEW, LINGERS_OF_MANY = (0,), (0, 5)
"""In ms, of the other clients: few tasks would only wait for it."""


async def tasks(bench: Bench) -> ScenarioReport:
    """Measure few and many tasks that each await their record; the others without a linger, many tasks also with it."""
    most, compared = 10_000, (10, 100, MANY_TASKS, 5_000)

    def contestant(client: str, variant: str, work: str, records: int, number: int, linger_ms: int) -> Contestant:
        shared = max(1, records // number) * number
        warmup = bench.size(5_000, 1_000)
        job = Job(work=work, records=shared, warmup_records=warmup, tasks=number, linger_ms=linger_ms)
        return Contestant(client, variant, job)

    contestants = []
    for number in (*compared, most):
        variant, records = f"{number:,} tasks", bench.size(300_000 if number < MANY_TASKS else 1_000_000, 20_000)
        contestants.append(contestant(OURS, variant, "ours.await_sends", records, number, 5))
        for client, (work, few, many, quick) in AWAITED.items() if number != most else ():
            records = bench.size(few if number < MANY_TASKS else many, quick)
            lingers = LINGERS_OF_FEW if number < MANY_TASKS else LINGERS_OF_MANY
            contestants += [
                contestant(client, _lingering(variant, each), work, records, number, each) for each in lingers
            ]
    rows = await bench.measure(contestants)
    of_most, of_few = (median_of(rows, OURS, f"{number:,} tasks") for number in (most, 100))
    comparisons = [Comparison(f"rate of {most:,} tasks / of 100 tasks", ratio(of_most, of_few))]
    for variant in (f"{number:,} tasks" for number in compared):
        comparisons += [each for client in AWAITED for each in _compared_tasks(rows, variant, client)]
    return ScenarioReport("tasks", "Tasks that each await send in a loop", rows, comparisons)


def _lingering(variant: str, linger_ms: int) -> str:
    return f"{variant}, linger {linger_ms}"


def _compared_tasks(rows: Sequence[Row], variant: str, client: str) -> list[Comparison]:
    """Compare with a client at the linger at which it is faster."""
    rates = {each: median_of(rows, client, _lingering(variant, each)) or 0.0 for each in LINGERS_OF_MANY}
    theirs = _lingering(variant, max(rates, key=rates.__getitem__))
    return [
        Comparison(f"{variant}: {name} / {client}", ratio(*figures))
        for name, figures in (
            ("rate", (median_of(rows, OURS, variant), median_of(rows, client, theirs))),
            ("CPU", (median_of(rows, OURS, variant, CPU), median_of(rows, client, theirs, CPU))),
        )
    ]


async def latency(bench: Bench) -> ScenarioReport:
    """Measure one task that awaits one record after another: ours with its usual linger, the others without."""
    job = Job(work="ours.latency", records=bench.size(3_000, 200), warmup_records=100)
    usual, plain, none = "linger 5 ms", "linger 5 ms, asyncio", "linger 0"
    contestants = [
        Contestant(OURS, usual, job),
        Contestant(OURS, plain, replace(job, work="ours.latency_on_asyncio")),
        Contestant(RAW_SOCKET, none, replace(job, work="raw_socket.latency")),
        Contestant(CONFLUENT, none, replace(job, work="confluent.latency", linger_ms=0)),
        Contestant(CONFLUENT_IN_ASYNCIO, none, replace(job, work="confluent_in_asyncio.latency", linger_ms=0)),
        Contestant(AIOKAFKA, none, replace(job, work="aiokafka.latency", linger_ms=0)),
    ]
    rows = await bench.measure(contestants)
    compared = ((OURS, usual), (CONFLUENT, none))
    cpu, p99 = (ratio(*(median_of(rows, *each, figure) for each in compared)) for figure in (CPU, "p99_us"))
    awaited = ((OURS, usual), (CONFLUENT_IN_ASYNCIO, none))
    cpu_awaited, p50_awaited = (
        ratio(*(median_of(rows, *each, figure) for each in awaited)) for figure in (CPU, "p50_us")
    )
    ours, on_asyncio = (median_of(rows, OURS, each, "p50_us") for each in (usual, plain))
    raw, confluent = (median_of(rows, each, none, "p50_us") for each in (RAW_SOCKET, CONFLUENT))
    above, theirs = (None if each is None or raw is None else each - raw for each in (ours, confluent))
    comparisons = [
        Comparison(f"CPU / {CONFLUENT}", cpu),
        Comparison("p50 above the raw socket's", above, "us"),
        Comparison(f"{CONFLUENT}: p50 above the raw socket's", theirs, "us"),
        Comparison(f"p99 / {CONFLUENT}", p99),
        Comparison("p50 on asyncio's own loop / on uvloop", ratio(on_asyncio, ours)),
        Comparison(f"CPU / {CONFLUENT_IN_ASYNCIO}", cpu_awaited),
        Comparison(f"p50 / {CONFLUENT_IN_ASYNCIO}", p50_awaited),
    ]
    return ScenarioReport("latency", "One task awaiting one record after another", rows, comparisons)


LARGE_TRANSACTION = 10_000
SMALL, LARGE = "of 1 record", f"of {LARGE_TRANSACTION:,} records"
TRANSACTIONS = {OURS: "ours.transact", CONFLUENT: "confluent.transact", AIOKAFKA: "aiokafka.transact"}


async def transactions(bench: Bench) -> ScenarioReport:
    """Measure begin, send and commit of each client, with one record and with many."""
    small, large = bench.size(1_000, 20), bench.size(100, 2)
    contestants = [
        Contestant(client, variant, Job(work=TRANSACTIONS[client], records=count * each, per_transaction=each))
        for variant, count, each in ((SMALL, small, 1), (LARGE, large, LARGE_TRANSACTION))
        for client in TRANSACTIONS
    ]
    raw = Job(work="raw_socket.transact", records=small, per_transaction=1)
    contestants.append(Contestant(RAW_SOCKET, SMALL, raw))
    # a broker reaches its full speed only after some thousand transactions
    await bench.warm_up(Job(work=TRANSACTIONS[OURS], records=5 * small, per_transaction=1))
    rows = await bench.measure(contestants)
    cpu = ratio(*(median_of(rows, client, SMALL, CPU) for client in (OURS, CONFLUENT)))
    comparisons = [
        Comparison(f"{SMALL}: rate / {CONFLUENT}", _rate_ratio(rows, SMALL, CONFLUENT)),
        Comparison(f"{SMALL}: CPU / {CONFLUENT}", cpu),
        Comparison(f"{SMALL}: rate / {RAW_SOCKET}", _rate_ratio(rows, SMALL, RAW_SOCKET)),
        Comparison(f"{LARGE}: rate / {CONFLUENT} with callback", _rate_ratio(rows, LARGE, CONFLUENT)),
        Comparison(f"{LARGE}: rate / {AIOKAFKA}", _rate_ratio(rows, LARGE, AIOKAFKA)),
    ]
    return ScenarioReport("transactions", "Transactions, one after another", rows, comparisons)


async def partitions(bench: Bench) -> ScenarioReport:
    """Measure whether the cost of a record grows with the number of partitions, on the embedded cluster."""
    few, many = 4, bench.size(10_000, 500)

    def variant(number: int) -> str:
        return f"{number:,} partitions"

    records, warmup = bench.size(30_000, 2_000), bench.size(5_000, 1_000)
    job = Job(work="ours.enqueue_in_turn", records=records, warmup_records=warmup, batch_size=0)
    contestants = [Contestant(OURS, variant(number), replace(job, partitions=number)) for number in (few, many)]
    async with embedded_broker() as embedded:
        rows = await replace(bench, broker=embedded).measure(contestants)
    cpu = ratio(median_of(rows, OURS, variant(many), CPU), median_of(rows, OURS, variant(few), CPU))
    comparisons = [Comparison(f"CPU at {many:,} partitions / at {few}", cpu)]
    notes = ["on the embedded cluster, in a process of its own"]
    return ScenarioReport("partitions", "One record to each partition in turn, batch_size=0", rows, comparisons, notes)


async def spread(bench: Bench) -> ScenarioReport:
    """Measure a batch that leaves with a thousand others, and records that go to another topic each time."""
    partition_count, topic_count = bench.size(1_000, 20), bench.size(100, 5)
    alone, to_all = "one awaited record", f"{partition_count:,} partitions, then 10 ms pause"
    in_turn = f"{topic_count} topics in turn"
    to_topics = Job(
        work="",
        topics=topic_count,
        partitions=1,
        records=bench.size(300_000, 5_000),
        warmup_records=bench.size(5_000, 1_000),
    )
    to_partitions = Job(
        work="ours.enqueue_to_all",
        partitions=partition_count,
        records=50 * partition_count,
        warmup_records=partition_count,
    )
    contestants = [
        Contestant(OURS, alone, Job(work="ours.latency", records=bench.size(3_000, 200), warmup_records=100)),
        Contestant(OURS, to_all, to_partitions),
        *(
            Contestant(client, in_turn, replace(to_topics, work=f"{module}.enqueue_to_topics_in_turn"))
            for client, module in ((OURS, "ours"), (CONFLUENT, "confluent"))
        ),
    ]
    rows = await bench.measure(contestants)
    of_all, of_one = (median_of(rows, OURS, each, CPU) for each in (to_all, alone))
    ours, theirs = (median_of(rows, client, in_turn, CPU) for client in (OURS, CONFLUENT))
    comparisons = [
        Comparison(f"{to_all}: CPU / {alone}", ratio(of_all, of_one)),
        Comparison(f"{in_turn}: CPU / {CONFLUENT}", ratio(ours, theirs)),
    ]
    return ScenarioReport("spread", "Records spread over partitions and topics", rows, comparisons)


async def topics(bench: Bench) -> ScenarioReport:
    """Measure whether the first use of a topic costs more the more topics are in use, on the embedded cluster."""
    few, many = bench.size(250, 20), bench.size(8_000, 200)

    def variant(number: int) -> str:
        return f"{number:,} topics"

    job = Job(work="ours.use_topics_in_turn", partitions=1, warmup_records=bench.size(100, 10))
    contestants = [Contestant(OURS, variant(number), replace(job, records=number)) for number in (few, many)]
    async with embedded_broker(topics=many) as embedded:
        rows = await replace(bench, broker=embedded).measure(contestants)
    cpu = ratio(median_of(rows, OURS, variant(many), CPU), median_of(rows, OURS, variant(few), CPU))
    comparisons = [Comparison(f"CPU of each of {many:,} topics / of {few}", cpu)]
    notes = ["on the embedded cluster, in a process of its own"]
    return ScenarioReport("topics", "One awaited record to each topic in turn", rows, comparisons, notes)


STALLED = {
    # variant -> work, bytes of a value, whether all records are offered before the broker resumes
    "await enqueue, 100 B": ("enqueue", 100, False),
    "send without await, 100 B": ("send", 100, True),
    "send without await, 10 KiB": ("send", 10_240, True),
}
TIMES_THE_BUFFER, STALLED_TASKS = 10, 100


async def stalled(bench: Bench) -> ScenarioReport:
    """Measure memory while ten times the buffer is offered to a stopped broker; all accepted records must arrive."""
    stall_s, buffer_memory = bench.size(20, 1), bench.size(33_554_432, 4_194_304)
    title = f"Broker stopped for {stall_s} s, {TIMES_THE_BUFFER} times the buffer offered"
    if bench.broker.stall is None:
        return ScenarioReport("stalled", title, notes=[f"left out: {bench.broker.name} cannot be stopped from here"])
    contestants = []
    for variant, (work, value_bytes, offers_all) in STALLED.items():
        job = Job(
            work=f"ours_stalled.{work}",
            records=TIMES_THE_BUFFER * buffer_memory // value_bytes // STALLED_TASKS * STALLED_TASKS,
            warmup_records=100,  # few: memory that the warm-up takes would not show as growth
            value_bytes=value_bytes,
            buffer_memory=buffer_memory,
            tasks=STALLED_TASKS,
        )
        contestants.append(Contestant(OURS, variant, job, stall_s, offers_all))
    rows = await bench.measure(contestants, rounds=1)
    comparisons = [
        Comparison(f"{variant}: {name}", median_of(rows, OURS, variant, figure), unit)
        for variant in STALLED
        for name, figure, unit in (("RSS growth", "rss_growth_mib", "MiB"), ("refused", "refused", "records"))
    ]
    return ScenarioReport("stalled", title, rows, comparisons)


IMPORT_PROGRAM = """
from time import perf_counter as now
start = now()
import {module}
print((now() - start) * 1e3)
"""


async def import_time(bench: Bench) -> ScenarioReport:
    """Measure the import of the package, and of aiokafka, in a new interpreter each time."""
    variant = "fresh interpreter"
    rows = [Row(module, variant) for module in (OURS, AIOKAFKA) if bench.wants(module)]
    for row in rows:
        await _import_ms(row.client)  # compiles modules that were never imported
    for _ in range(bench.size(15, 3)):
        for row in rows:
            row.add({"import_ms": await _import_ms(row.client)})
    ours, aiokafka = (median_of(rows, module, variant, "import_ms") for module in (OURS, AIOKAFKA))
    comparisons = [Comparison(f"import time / {AIOKAFKA}", ratio(ours, aiokafka))]
    return ScenarioReport("import", "Import of the package", rows, comparisons)


async def _import_ms(module: str) -> float:
    async with python_process("-c", IMPORT_PROGRAM.format(module=module)) as process:
        printed, errors = await process.communicate()
    if process.returncode != 0:
        raise WorkerError(failure_text(f"import of {module} failed", errors))
    return float(printed)


def _rate_ratio(rows: Sequence[Row], variant: str, peer: str) -> float | None:
    return ratio(median_of(rows, OURS, variant), median_of(rows, peer, variant))


ENQUEUED = {
    # variant -> work
    "defaults": "ours_with_presets.enqueue_defaults",
    "throughput()": "ours_with_presets.enqueue_throughput",
    "durable()": "ours_with_presets.enqueue_durable",
}
CALLED_BACK = {
    "defaults, each 2 ms": "ours_with_presets.callbacks_defaults",
    "low_latency(), each 2 ms": "ours_with_presets.callbacks_low_latency",
}
RATIOS = {
    # preset -> figures, relative to the defaults
    "throughput()": {"rate": "records_per_s", "CPU": "cpu_us_per_record", "bytes sent": "sent_bytes_per_record"},
    "durable()": {"rate": "records_per_s", "CPU": "cpu_us_per_record"},
    "low_latency(), each 2 ms": {"p50": "p50_us", "p99": "p99_us"},
}


async def presets(bench: Bench) -> ScenarioReport:
    """Measure JSON documents of about 200 bytes: in a loop, or one each 2 ms, from the call to its callback."""
    many = Job(work="", records=bench.size(1_000_000, 20_000), warmup_records=bench.size(20_000, 1_000))
    few = Job(work="", records=bench.size(2_000, 100), warmup_records=bench.size(100, 10))
    rows = await bench.measure(
        [
            Contestant(OURS, variant, replace(job, work=work))
            for works, job in ((ENQUEUED, many), (CALLED_BACK, few))
            for variant, work in works.items()
        ]
    )
    comparisons = []
    for variant, figures in RATIOS.items():
        defaults = "defaults, each 2 ms" if variant in CALLED_BACK else "defaults"
        for name, figure in figures.items():
            value = ratio(median_of(rows, OURS, variant, figure), median_of(rows, OURS, defaults, figure))
            comparisons.append(Comparison(f"{variant}: {name} / defaults", value))
    return ScenarioReport("presets", "JSON documents with the presets of ProducerConfig", rows, comparisons)


async def mock(bench: Bench) -> ScenarioReport:
    """Measure `MockProducer.send` beside `enqueue` to the broker."""
    job = Job(work="", records=bench.size(1_000_000, 20_000), warmup_records=bench.size(5_000, 1_000))
    works = {"Producer.enqueue": "ours.enqueue", "MockProducer.send": "ours_with_presets.send_to_mock"}
    rows = await bench.measure([Contestant(OURS, variant, replace(job, work=work)) for variant, work in works.items()])
    rate = ratio(*(median_of(rows, OURS, variant) for variant in reversed(works)))
    return ScenarioReport(
        "mock",
        "MockProducer, which sends nothing",
        rows,
        [Comparison("MockProducer.send: rate / Producer.enqueue", rate)],
    )


PLAIN, SCRAPED, TRACED, AVRO, EXPLAIN = "plain", "scraped each second", "one span per record", "Avro", "explain()"
OPENTELEMETRY, FASTAVRO = "OpenTelemetry alone", "fastavro alone"
OBSERVED = {
    # client, variant -> work, records of a full run, of a quick run
    (OURS, PLAIN): ("plain", 4_000_000, 20_000),
    (OURS, SCRAPED): ("scraped", 4_000_000, 20_000),
    (OURS, TRACED): ("traced", 100_000, 2_000),
    (OPENTELEMETRY, TRACED): ("traces_alone", 100_000, 2_000),
    (OURS, AVRO): ("avro", 500_000, 5_000),
    (FASTAVRO, AVRO): ("avro_alone", 500_000, 5_000),
}


async def observed(bench: Bench) -> ScenarioReport:
    """Measure what it costs to be scraped, traced, explained, and to write Avro, on the embedded cluster."""
    many = bench.size(10_000, 500)

    def job(work: str, full: int, quick: int) -> Job:
        return Job(work=f"ours_observed.{work}", records=bench.size(full, quick), warmup_records=bench.size(5_000, 500))

    contestants = [Contestant(client, variant, job(*work)) for (client, variant), work in OBSERVED.items()]
    explaining = replace(job("explain", 20, 3), partitions=many)
    contestants.append(Contestant(OURS, EXPLAIN, explaining))
    async with embedded_broker() as embedded:
        rows = await replace(bench, broker=embedded).measure(contestants)

    def of_cpu(variant: str, alone: str) -> float | None:
        return ratio(median_of(rows, OURS, variant, CPU), median_of(rows, alone, variant, CPU))

    explained, passed = (median_of(rows, OURS, EXPLAIN, figure) for figure in ("explain_us", "pass_us"))
    comparisons = [
        Comparison(f"{SCRAPED}: rate / {PLAIN}", ratio(median_of(rows, OURS, SCRAPED), median_of(rows, OURS, PLAIN))),
        Comparison(f"{TRACED}: CPU / {OPENTELEMETRY}", of_cpu(TRACED, OPENTELEMETRY)),
        Comparison(f"{AVRO}: CPU / {FASTAVRO}", of_cpu(AVRO, FASTAVRO)),
        Comparison(f"{EXPLAIN} of {many:,} partitions / one pass in Python", ratio(explained, passed)),
    ]
    notes = ["on the embedded cluster, in a process of its own", "spans and metrics of the SDK, without an exporter"]
    return ScenarioReport("observed", "Metrics, traces, Avro, explain()", rows, comparisons, notes)


OPENSSL = "OpenSSL alone"
TLS_WORKS = {
    # event loop -> work
    "uvloop": "ours.enqueue",
    "asyncio": "ours_with_tls.enqueue_on_asyncio",
    "busy thread": "ours_with_tls.enqueue_beside_a_busy_thread",
}
TLS_SIZES = {1_000: (1_000_000, 30_000), 100: (3_000_000, 50_000)}
"""Bytes of a value -> records of a full run, of a quick one."""


async def tls(bench: Bench) -> ScenarioReport:
    """Measure rate and CPU of TLS against plaintext, on a real broker that has a listener for each."""
    title = "Enqueue in a loop, then flush, over TLS and plaintext"
    async with KafkaCluster(
        KAFKA_VERSION, properties=REAL_PROPERTIES, security=ClusterSecurity(), performance=True
    ) as kafka:
        over_tls = kafka.client_options("SSL")
        secured = str(over_tls["bootstrap_servers"]), str(over_tls["ssl_truststore_location"])
        measured = replace(bench, broker=BrokerUnderTest("real Kafka with TLS", kafka.bootstrap_servers))
        contestants = _tls_contestants(bench, *secured)
        await measured.warm_up(*(contestant.job for contestant in contestants[:2]))
        rows = await measured.measure(contestants)
    return ScenarioReport("tls", title, rows, _tls_comparisons(rows))


def _tls_contestants(bench: Bench, servers: str, ca_file: str) -> list[Contestant]:
    found = []
    for value_bytes, (full, quick) in TLS_SIZES.items():
        plain = Job(
            work="",
            records=bench.size(full, quick),
            warmup_records=bench.size(20_000, 1_000),
            value_bytes=value_bytes,
        )
        secured = replace(plain, secured_servers=servers, ca_file=ca_file)
        for loop, work in TLS_WORKS.items():
            for name, job in (("TLS", secured), ("plaintext", plain)):
                variant = f"{value_bytes} B, {loop}, {name}"
                found.append(Contestant(OURS, variant, replace(job, work=work)))
        confluent = replace(secured, work="confluent.enqueue_with_callback")
        found.append(Contestant(CONFLUENT, f"{value_bytes} B, TLS", confluent))
        found.append(Contestant(OPENSSL, f"{value_bytes} B", replace(plain, work="ours_with_tls.encrypt")))
    return found


def _tls_comparisons(rows: Sequence[Row]) -> list[Comparison]:
    found = []
    for size in TLS_SIZES:
        alone = median_of(rows, OPENSSL, f"{size} B", CPU)
        for loop in TLS_WORKS:
            over_tls, plain = f"{size} B, {loop}, TLS", f"{size} B, {loop}, plaintext"
            rate = ratio(median_of(rows, OURS, over_tls), median_of(rows, OURS, plain))
            found.append(Comparison(f"{size} B, {loop}: rate / plaintext", rate))
            cpu_tls, cpu_plain = median_of(rows, OURS, over_tls, CPU), median_of(rows, OURS, plain, CPU)
            extra = None if cpu_tls is None or cpu_plain is None else cpu_tls - cpu_plain
            found.append(Comparison(f"{size} B, {loop}: extra CPU / {OPENSSL}", ratio(extra, alone)))
        peer, ours = f"{size} B, TLS", f"{size} B, uvloop, TLS"
        of_rates = ratio(median_of(rows, OURS, ours), median_of(rows, CONFLUENT, peer))
        of_cpu = ratio(median_of(rows, OURS, ours, CPU), median_of(rows, CONFLUENT, peer, CPU))
        found.append(Comparison(f"{size} B, TLS: rate / {CONFLUENT}", of_rates))
        found.append(Comparison(f"{size} B, TLS: CPU / {CONFLUENT}", of_cpu))
    return found


SCENARIOS: Mapping[str, Callable[[Bench], Awaitable[ScenarioReport]]] = {
    "enqueue": enqueue,
    "hooks": hooks,
    "arrow": arrow,
    "tasks": tasks,
    "latency": latency,
    "transactions": transactions,
    "partitions": partitions,
    "spread": spread,
    "topics": topics,
    "stalled": stalled,
    "presets": presets,
    "mock": mock,
    "import": import_time,
    "observed": observed,
    "tls": tls,
    "outbox": outbox,
    "spark": spark,
}
"""By the names that `--only` takes, in the order in which they run."""

ONLY_WHEN_NAMED = frozenset({"outbox", "spark", "tls"})
"""The first needs PostgreSQL; the second takes as long as all others, and needs PySpark; the third starts a broker."""
