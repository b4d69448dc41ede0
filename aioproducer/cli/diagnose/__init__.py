"""`aioproducer diagnose`: every step of connecting to a cluster, one after another."""

from aioproducer.cli.diagnose.command import diagnose

__all__ = ["diagnose"]
