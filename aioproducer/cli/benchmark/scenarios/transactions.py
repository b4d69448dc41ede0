"""Transactions, one after another: small ones, where the brokers' answers are all, and large ones."""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.sizes import LARGE_TRANSACTION
from aioproducer.cli.benchmark.steadiness import RAW_SOCKET

CONFLUENT, AIOKAFKA = "confluent-kafka", "aiokafka"
SMALL, LARGE = "of 1 record", f"of {LARGE_TRANSACTION:,} records"
WARM_UP_ROUNDS = 5
RAW_WORK = "raw_in_transactions.transact"
MODULES = {OURS: "ours_in_transactions", CONFLUENT: "confluent_in_transactions", AIOKAFKA: "aiokafka_in_transactions"}


async def transactions(bench: Bench) -> ScenarioReport:
    """Measure begin, send, commit of each client, with one record and with many; all learn what became of each.

    The raw socket has small ones alone: of these the brokers' answers are nearly all. A broker needs some thousand
    transactions before it is as fast as it will be, and no client is to meet it before.
    """
    clients = [OURS, *filter(is_installed, (CONFLUENT, AIOKAFKA))]
    contestants = [
        Contestant(client, variant, Job(work=f"{MODULES[client]}.transact", records=count * each, per_transaction=each))
        for variant, count, each in (
            (SMALL, bench.sizes.small_transactions, 1),
            (LARGE, bench.sizes.large_transactions, LARGE_TRANSACTION),
        )
        for client in clients
    ]
    small = bench.sizes.small_transactions
    contestants.append(Contestant(RAW_SOCKET, SMALL, Job(work=RAW_WORK, records=small, per_transaction=1)))
    await bench.warm_up(Job(work=RAW_WORK, records=WARM_UP_ROUNDS * small, per_transaction=1))
    rows, notes = await bench.measure(contestants)
    rates = {
        (client, variant): median_of(rows, client, variant, "records_per_s")
        for client in (*clients, RAW_SOCKET)
        for variant in (SMALL, LARGE)
    }
    bars = [
        Bar(
            "of 1 record: rate / confluent-kafka", ratio(rates[OURS, SMALL], rates.get((CONFLUENT, SMALL))), 1.25, None
        ),
        Bar("of 1 record: rate / raw socket", ratio(rates[OURS, SMALL], rates[RAW_SOCKET, SMALL]), None, None),
        Bar(
            f"{LARGE}: rate / confluent-kafka with callback",
            ratio(rates[OURS, LARGE], rates.get((CONFLUENT, LARGE))),
            3.0,
            5.0,
        ),
        Bar(f"{LARGE}: rate / aiokafka", ratio(rates[OURS, LARGE], rates.get((AIOKAFKA, LARGE))), None, None),
    ]
    return ScenarioReport("transactions", "Transactions, one after another", rows, bars, notes)
