"""The tutorial on transactions, done as it says: every block is run, in order, and prints what it says."""

from pathlib import Path

import pytest

from aioproducer.testing.kafka.server_properties import free_ports
from tests.docs.test_first_record import check_tutorial, programs

TUTORIAL = Path(__file__).parent.parent.parent / "docs" / "tutorials" / "first_transaction.md"

pytestmark = [pytest.mark.slow, pytest.mark.timing]


def test_tutorial_does_what_it_says(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    page = TUTORIAL.read_text("utf-8").replace("9092", str(port))

    assert list(programs(page)) == ["transfer.py", "worker.py"]
    check_tutorial(page, port, tmp_path)
