"""Spark: a PySpark data source that writes to Kafka and reads from it, exactly once where that is asked for.

    df.write.format("aioproducer").mode("append").options(**kafka).option("topic", "orders").save()

Spark finds the format by itself, through the module `pyspark_aioproducer`. The functions here help where it does not,
and set up a session. pyspark, pyarrow and aiokafka come with `aioproducer[spark]`; they are imported at the first call.
"""

from aioproducer.spark._progress import offsets_behind_latest
from aioproducer.spark._session import activate, check, foreach_batch, recommended_conf, register

__all__ = ["activate", "check", "foreach_batch", "offsets_behind_latest", "recommended_conf", "register"]
