"""The session that both jobs use."""

import os
import sys
import warnings

from pyspark.sql import SparkSession

from aioproducer.spark import check, recommended_conf


def started(name: str, cores: int) -> SparkSession:
    """Start Spark in this process; `local[N,4]` tries a failed task again, as a cluster does."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", module=r"pyspark\.")
    spark = (
        SparkSession.builder.appName(name)
        .master(f"local[{cores},4]")
        .config(map=recommended_conf())
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    check(spark)
    return spark
