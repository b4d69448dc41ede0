"""What an attempt that fails is called, and what it is told with."""

import logging

import asyncpg
import pytest
from sqlalchemy.exc import ProgrammingError

from aioproducer._logs import event_log
from aioproducer.errors import BrokerConnectionError
from aioproducer.outbox import OutboxError, _attempts
from aioproducer.outbox._attempts import Attempts, words_of


@pytest.mark.parametrize(
    "error, text",
    [
        (OutboxError("no table"), "no table"),
        (BrokerConnectionError("no broker"), "no broker"),
        (ProgrammingError("SELECT 1", {}, ValueError("no such column")), "database: no such column"),
        (asyncpg.CannotConnectNowError("it starts up"), "database: it starts up"),
        (ConnectionRefusedError(111, "refused"), "database: [Errno 111] refused"),
        (AttributeError("no attribute 'x'"), "AttributeError: no attribute 'x'"),
    ],
)
def test_only_an_error_of_the_database_is_called_so(error: Exception, text: str) -> None:
    """SQLAlchemy 2.0 has asyncpg's own errors where it cannot connect."""
    assert words_of(error) == text


@pytest.mark.parametrize("error, has_traceback", [(ValueError("a defect"), True), (OSError("no way"), False)])
async def test_defect_is_told_with_its_traceback(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, has_traceback: bool
) -> None:
    monkeypatch.setattr(_attempts, "BACKOFF_MS", (1, 1))
    attempts = Attempts(event_log("outbox orders"))
    with caplog.at_level(logging.WARNING):
        await attempts.failed(error)
        await attempts.failed(error)

    (told,) = caplog.records
    assert ("exception=" in told.getMessage()) is has_traceback
