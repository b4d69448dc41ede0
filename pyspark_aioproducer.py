"""The place where Spark looks for the format `aioproducer`.

Spark imports every module called pyspark_*, in each session, and takes the name `DefaultSource` from it. What fails
here would hide the user's other data sources too. So nothing is imported before Spark asks for the name, and then only
what pyspark itself has; pyarrow and aiokafka are imported when the format is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.spark._source import AioproducerDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(name)
    from aioproducer.spark._source import AioproducerDataSource  # noqa: PLC0415  # see above

    return AioproducerDataSource
