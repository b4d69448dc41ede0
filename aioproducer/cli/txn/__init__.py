"""`aioproducer txn`: questions to coordinators and leaders, and tables of their answers."""

from aioproducer.cli.txn.command import txn

__all__ = ["txn"]
