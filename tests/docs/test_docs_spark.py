"""The blocks of the documentation that need Spark run, on the embedded cluster and in one session.

As in test_docs_code.py, what a page shows runs with what it shows above.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing import FakeCluster
from tests.docs.code_blocks import PAGES, ROOT, code_blocks, page_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_PAGES = [page for page in PAGES if code_blocks(page, of_spark=True)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: nox -s spark"),
]


@pytest.fixture(scope="module")
def session() -> Iterator["SparkSession"]:
    """A session that the pages' own `getOrCreate` finds."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # only in the environment of `nox -s spark`

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2,4]").config(map=conf).getOrCreate()
    yield spark
    spark.stop()


@pytest.mark.parametrize("page", SPARK_PAGES, ids=page_name)
def test_spark_code_of_a_page_runs(page: Path, session: "SparkSession") -> None:
    """As it stands there; `spark` is known to a page that does not make it."""
    topics = {"flights": 2, "enriched": 2, "delays": 2}
    names: dict[str, object] = {"__name__": page.stem, "spark": session}
    with FakeCluster.in_thread(1, topics=topics) as cluster:
        unseen: dict[str, object] = {}
        for block in code_blocks(page, of_spark=True):
            text = "\n" * block.above + block.code.replace("localhost:9092", cluster.bootstrap_servers)
            unseen |= names
            exec(
                compile(text, page_name(page), "exec", dont_inherit=True),
                names if block.is_shown else unseen,
            )
