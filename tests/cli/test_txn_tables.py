"""What any client of the cluster may have chosen plays no tricks with a terminal, and fits on a line."""

from aioproducer._admin.transactions import IdleTransaction
from aioproducer._protocol.transaction_admin_messages import ActiveProducer, ListedTransaction, TransactionDescription
from aioproducer.cli.txn import described_lines, hanging_lines, listed_lines

EVIL = "\x1b]0;owned\x07\nPrepareCommit " + "x" * 32_000


def is_harmless(lines: list[str]) -> bool:
    return all(line.isprintable() and len(line) < 1_000 for line in lines)


def test_list_shows_no_raw_text() -> None:
    lines = list(listed_lines([(ListedTransaction(EVIL, 7, EVIL), 1)]))

    assert is_harmless(lines)
    assert lines[1].startswith(r"\x1b]0;owned\x07\nPrepareCommit xxx")


def test_description_shows_no_raw_text() -> None:
    described = TransactionDescription(0, EVIL, EVIL, 1000, 1, 7, 0, [(EVIL, 0)])

    assert is_harmless(list(described_lines(described, [], 2000)))


def test_suggested_abort_command_quotes_its_topic() -> None:
    """It is there to be copied into a shell."""
    producer = ActiveProducer(7, 0, 0, 1, 0, 5)
    lines = list(hanging_lines([IdleTransaction("t; rm -rf ~\x1b", 0, producer, 60.0)]))

    assert is_harmless(lines)
    assert r"--topic 't; rm -rf ~\x1b' --partition 0" in lines[-1]


def test_time_that_cannot_be_is_shown_as_a_number() -> None:
    described = TransactionDescription(0, "id", "Ongoing", 1000, 2**62, 7, 0, [])

    assert any(f"{2**62} ms after 1970" in line for line in described_lines(described, [], 2000))
