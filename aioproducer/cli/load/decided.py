"""Whether a run of a load that failed or was interrupted is in Kafka: the sink's last decision says so."""

import enum
from typing import Final

from aioproducer._admin.cluster_requests import NoResponseError
from aioproducer.errors import BrokerError, ConfigurationError, KafkaError
from aioproducer.spark._commit import SinkCommit, SinkConflictError, UndecidedBatchError
from aioproducer.spark._coordinators import with_sink
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._task import TaskError

_OF_TASKS: Final = frozenset(each.__name__ for each in (TaskError, UndecidedBatchError, SinkConflictError))
"""Errors of tasks, and of a commit before its decision; an abort raises none of them."""
_OF_REQUESTS: Final = frozenset(each.__name__ for each in (ConfigurationError, NoResponseError, BrokerError))
"""Errors that `SinkCommit.commit` raises only as long as no decision was sent. Spark may tell those of the abort."""

DRIVER_IS_GONE: Final = frozenset(
    {"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "EOFError"}
)
"""Errors of a call to Spark's JVM that has died: its commit may still be running, in a process of its own."""


class RunState(enum.Enum):
    """Knowledge about a run."""

    DECIDED = enum.auto()
    """All of it is visible, or will be once its commit is finished."""
    UNDECIDED = enum.auto()
    """Nothing of it is or will be visible."""
    UNKNOWN = enum.auto()
    """The cluster does not answer, or the run's commit may still be running."""
    OVERTAKEN = enum.auto()
    """Another run under the sink was decided since, and the last decision no longer says whether this one was."""


class RunDecision:
    """Compares the last decision of a sink before and after one run.

    Args:
        options: of the write, exactly once.
        query: of the run, as its decision names it.
        is_on_spark: whether Spark runs it, which may tell the error of its abort in place of its own.
    """

    def __init__(self, options: SinkOptions, query: str, *, is_on_spark: bool = False) -> None:
        self._options = options
        self._query = query
        self._undecided = _OF_TASKS if is_on_spark else _OF_TASKS | _OF_REQUESTS
        self._before: tuple[int | None, str | None] | None = None

    def look(self) -> None:
        """Note the last decision, before the run sends anything.

        What an earlier run has left open is ended first: its decision may still be on its way.

        Raises:
            ConfigurationError: the topic does not exist.
            KafkaError: as `SinkCommit.prepare`.
        """
        self._before = self._ended()

    @property
    def was_decided_before(self) -> bool:
        """Whether an earlier run under the same id was decided."""
        return self._before is not None and self._before[1] == self._query

    @property
    def is_begun(self) -> bool:
        """Whether the run may have sent anything."""
        return self._before is not None

    def after_error(self, name: str) -> RunState:
        """Return the state of a run that failed, from the error's name, or from the cluster if that leaves it open."""
        if self.was_decided_before:
            return RunState.DECIDED
        if name in self._undecided:
            return RunState.UNDECIDED
        try:
            decision = with_sink(self._options, SinkCommit.last_decision)
            found = self._compared((None, None) if decision is None else (decision.batch, decision.query))
        except KafkaError:
            return RunState.UNKNOWN
        is_open = found is RunState.UNDECIDED and name in DRIVER_IS_GONE
        return RunState.UNKNOWN if is_open else found

    def after_interrupt(self) -> RunState:
        """Finish what is decided of the sink, abort the rest, and return the state of the run.

        Raises:
            KafkaError: as `SinkCommit.prepare`.
        """
        return self._compared(self._ended())

    def _ended(self) -> tuple[int | None, str | None]:
        last = with_sink(self._options, SinkCommit.prepare)
        return last.last_batch, last.last_query

    def _compared(self, last: tuple[int | None, str | None]) -> RunState:
        _, query = last
        if query == self._query:
            return RunState.DECIDED
        return RunState.UNDECIDED if self._before in {None, last} else RunState.OVERTAKEN
