"""`aioproducer tail`: a consumer, and its records as lines on standard output."""

from aioproducer.cli.tail.command import tail

__all__ = ["tail"]
