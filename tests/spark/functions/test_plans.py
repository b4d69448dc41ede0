"""Options that hold secrets are in no plan of a session with the recommended settings."""

from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.secret_options import CANARY, SECRETS

READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **SECRETS}


def plans(spark: SparkSession, frame: DataFrame) -> str:
    """Return every text that Spark makes of a plan."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001  # py4j
    explain = spark._jvm.PythonSQLUtils.explainString  # noqa: SLF001  # py4j
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    return "\n".join([execution.toString(), *(explain(execution, mode) for mode in modes)])


def test_plans_of_reads_hold_no_secret(spark: SparkSession) -> None:
    stream = plans(spark, spark.readStream.format("aioproducer").options(**READ).load())
    assert "kafka.ssl.keystore.key=*********(redacted)" in stream
    assert CANARY not in stream + plans(spark, spark.read.format("aioproducer").options(**READ).load())
