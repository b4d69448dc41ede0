"""`aioproducer produce`: lines are read, made into records and sent, and their results counted."""

from aioproducer.cli.produce.command import produce

__all__ = ["produce"]
