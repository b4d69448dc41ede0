"""Fixtures of the crash cases."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.conftest import ROW

if TYPE_CHECKING:
    from tests.spark.crashes.case import MakeCase

collect_ignore_glob: list[str] = [] if find_spec("pyspark") else ["test_*.py"]

BROKERS = ("4.4.0", "3.9.1")


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """One node, shared by all cases that let it live."""
    found: KafkaCluster = request.getfixturevalue(f"kafka_{request.param.replace('.', '')}")
    return found


@pytest.fixture
def make_case(tmp_path: Path, topic: str, record_property: Callable[[str, object], None]) -> "MakeCase":
    """Makes the case of this test on a cluster."""
    from tests.spark.crashes.case import Case  # noqa: PLC0415  # needs pyspark

    def make(kafka: KafkaCluster, **settings: object) -> Case:
        name = topic.replace("_", "-")
        return Case(kafka, tmp_path, name, lambda row: record_property(ROW, tuple(row)), **settings)  # type: ignore[arg-type]

    return make
