"""Producers in web services of any ASGI framework; needs no extra."""

from aioproducer.integrations.asgi._deadline import InvalidDeadlineError, deadline
from aioproducer.integrations.asgi._inspector import inspector
from aioproducer.integrations.asgi._lifespan import lifespan
from aioproducer.integrations.asgi._readiness import readiness

__all__ = ["InvalidDeadlineError", "deadline", "inspector", "lifespan", "readiness"]
