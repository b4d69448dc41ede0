"""`aioproducer load`: Parquet, and what else Spark reads, into a topic."""

from aioproducer.cli.load.command import load

__all__ = ["load"]
