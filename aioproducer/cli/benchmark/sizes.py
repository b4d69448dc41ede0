"""How much is measured: the full bench, and a short one that only shows that everything runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of records, rounds and seconds; a run of a client should last a few seconds."""

    rounds: int
    enqueue_records: dict[str, int]
    """By the client's name: each gets what keeps it busy for about the same time."""

    hook_records: int
    warmup_records: int
    java_warmup_records: int
    """More, because the JVM compiles what it finds hot while it runs."""

    broker_warmup_records: int
    """Sent by the raw socket and thrown away, so that the first client does not meet a cold broker."""

    task_records: int
    aiokafka_task_records: int
    latency_records: int
    small_transactions: int
    """Of one record each."""

    large_transactions: int
    """Of `LARGE_TRANSACTION` records each."""

    copied_records: dict[str, int]
    """By the client's name."""

    many_partitions: int
    spread_records: int
    stall_s: float
    stall_buffer: int
    """`buffer_memory` of the stalled producer, in bytes."""

    lag_s: float
    import_rounds: int


LARGE_TRANSACTION = 10_000

FULL = Sizes(
    rounds=5,
    enqueue_records={
        "aioproducer": 4_000_000,
        "raw socket": 6_000_000,
        "Java producer": 2_000_000,
        "confluent-kafka": 1_200_000,
        "confluent-kafka, no callback": 2_000_000,
        "aiokafka": 150_000,
        "aiokafka, no results": 150_000,
        "kafka-python": 60_000,
    },
    hook_records=1_000_000,
    warmup_records=5_000,
    java_warmup_records=600_000,
    broker_warmup_records=10_000_000,
    task_records=1_000_000,
    aiokafka_task_records=20_000,
    latency_records=3_000,
    small_transactions=1_000,
    large_transactions=100,
    copied_records={"aioproducer": 300_000, "aiokafka": 100_000},
    many_partitions=10_000,
    spread_records=30_000,
    stall_s=20.0,
    stall_buffer=33_554_432,
    lag_s=5.0,
    import_rounds=15,
)

QUICK = Sizes(
    rounds=1,
    enqueue_records={
        "aioproducer": 200_000,
        "raw socket": 400_000,
        "Java producer": 100_000,
        "confluent-kafka": 60_000,
        "confluent-kafka, no callback": 100_000,
        "aiokafka": 10_000,
        "aiokafka, no results": 10_000,
        "kafka-python": 4_000,
    },
    hook_records=20_000,
    warmup_records=1_000,
    java_warmup_records=20_000,
    broker_warmup_records=200_000,
    task_records=20_000,
    aiokafka_task_records=5_000,
    latency_records=200,
    small_transactions=20,
    large_transactions=2,
    copied_records={"aioproducer": 2_000, "aiokafka": 2_000},
    many_partitions=500,
    spread_records=2_000,
    stall_s=1.0,
    stall_buffer=4_194_304,
    lag_s=0.5,
    import_rounds=3,
)
