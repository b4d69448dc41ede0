"""`aioproducer produce`: `read` and `formats` make records of lines, `feed` sends them, `run` and `report` are around."""

from aioproducer.cli.produce.command import produce

__all__ = ["produce"]
