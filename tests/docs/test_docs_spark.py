"""The blocks of the documentation that need Spark run, on the embedded cluster and in one session.

As in test_docs_code.py, what a page shows runs with what it shows above.
"""

import ast
import builtins
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
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",  # a busy machine is no defect
    }
    spark = SparkSession.builder.master("local[2,4]").config(map=conf).getOrCreate()
    yield spark
    spark.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", SPARK_PAGES, ids=page_name)
def test_spark_code_of_a_page_runs(page: Path, session: "SparkSession", tmp_path: Path) -> None:
    """As it stands there; `spark` is known to a page that does not make it."""
    topics = {"flights": 2, "delays": 2}
    names: dict[str, object] = {"__name__": page.stem, "spark": session}
    with FakeCluster.in_thread(1, topics=topics) as cluster:
        unseen: dict[str, object] = {}
        for block in code_blocks(page, of_spark=True):
            code = block.code.replace("localhost:9092", cluster.bootstrap_servers)
            text = "\n" * block.above + code.replace('"checkpoints/', f'"{tmp_path}/')
            unseen |= names
            exec(
                compile(text, page_name(page), "exec", dont_inherit=True),
                names if block.is_shown else unseen,
            )


JOBS = code_blocks(ROOT / "docs" / "how-to" / "spark.md", of_spark=True)[:3]


def test_first_blocks_of_the_spark_page_are_whole_jobs() -> None:
    """Each is pasted alone: every name in it is made or imported there."""
    for job in JOBS:
        assert job.code.startswith("from pyspark.sql import ")
        assert "getOrCreate()" in job.code
        tree = ast.parse(job.code)
        made = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        made |= {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        made |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert used <= made | set(dir(builtins))
