"""Reads what a session has left on the brokers by librdkafka, past the proxies, and compares it with the histories."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka

from tests.integrations.workers import GROUP
from tests.programs.chaos.checker.transaction_check import (
    CommittedRecord,
    check_balances,
    check_copies,
    check_transactions,
)
from tests.programs.chaos.checker.verdict import Verdict
from tests.programs.chaos.transacting.bank import ACCOUNTS, AT_FIRST, TELLER, TRANSFER_RECORDS, decode_balance
from tests.programs.chaos.transacting.history import RECORDS, What, decode_value, read_lines
from tests.programs.chaos.transacting.processes import BANK, INPUT, INPUT_PARTITIONS, OUTPUT, TOPIC

END_OF_PARTITION = -191  # librdkafka's own code
CONSUME_S = 0.5  # time of one poll for a number of records


def check_session(bootstrap: str, folder: Path, copies: int) -> Verdict:
    """Check everything: what processes wrote into the folder, and what the cluster holds."""
    verdict = Verdict()
    found = [CommittedRecord(place, *decode_value(value)) for place, value in committed(bootstrap, TOPIC)]
    check_transactions(found, ends(folder, is_bank=False), records=RECORDS, verdict=verdict, figure="transactions")
    told = [(place, decode_balance(value)) for place, value in committed(bootstrap, BANK)]
    transfers = [CommittedRecord(place, *balance[:4]) for place, balance in told]
    check_transactions(
        transfers, ends(folder, is_bank=True), records=TRANSFER_RECORDS, verdict=verdict, figure="transfers"
    )
    check_balances(((balance.account, balance.amount) for _, balance in told), ACCOUNTS, AT_FIRST, verdict=verdict)
    seen = Counter(int(value) for _, value in committed(bootstrap, OUTPUT))
    check_copies(copies, seen, group_offsets(bootstrap), verdict=verdict)
    verdict.figures["copies"] = seen.total()
    return verdict


def ends(folder: Path, *, is_bank: bool) -> dict[tuple[str, int], str | None]:
    """Return the end of each transaction of the bank, or of the others; None if it was not written down."""
    return {
        (line.life, line.number): None if line.what == What.BEGIN else line.what
        for line in read_lines(folder)
        if (line.transactional_id == TELLER) == is_bank
    }


def committed(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes]]:
    """Partition and value of every record that is committed, in each partition in the order of offsets."""
    consumer, ended = reader(bootstrap), 0
    partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    while ended < len(partitions):
        for message in consumer.consume(1_000, CONSUME_S):
            if message.error() is None:
                yield message.partition(), message.value()
            elif message.error().code() == END_OF_PARTITION:
                ended += 1
    consumer.close()


def group_offsets(bootstrap: str) -> list[int]:
    consumer = reader(bootstrap)
    places = [confluent_kafka.TopicPartition(INPUT, number) for number in range(INPUT_PARTITIONS)]
    offsets = [place.offset for place in consumer.committed(places, 30)]
    consumer.close()
    return [max(offset, 0) for offset in offsets]


def reader(bootstrap: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{INPUT}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
