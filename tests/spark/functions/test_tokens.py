"""OAUTHBEARER in Spark: the driver and the tasks import the provider that the options name, for a write and a read."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aioproducer.testing import ClusterSecurity, FakeCluster
from tests.spark.functions.test_write import expected, numbers

PROVIDER = """
from aioproducer.testing import unsecured_token

class Tokens:
    def __init__(self, user):
        self._user = user

    async def token(self):
        return unsecured_token(self._user)
"""


@pytest.mark.parametrize("is_once", [False, True])
def test_rows_are_written_and_read_by_a_named_provider(
    spark: SparkSession,
    tmp_path: Path,
    is_once: bool,  # noqa: FBT001  # a parameter
) -> None:
    """Its module comes with the job, as by `--py-files`."""
    module = tmp_path / f"tokens_of_{is_once}.py".lower()
    module.write_text(PROVIDER, "utf-8")
    spark.sparkContext.addPyFile(str(module))
    with FakeCluster.in_thread(1, topics={"t": 2}, security=ClusterSecurity()) as cluster:
        secured = cluster.client_options("SASL_SSL", "OAUTHBEARER")
        options = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in secured.items()}
        options["kafka.sasl.token.provider"] = f"{module.stem}:Tokens user=alice"
        once = {"exactlyOnce": "true", "sinkId": "s"} if is_once else {}
        numbers(spark).write.format("aioproducer").mode("append").options(topic="t", **options, **once).save()
        read = spark.read.format("aioproducer").options(subscribe="t", **options).load()
        assert sorted(row[0] for row in read.selectExpr("CAST(value AS STRING)").collect()) == expected()
