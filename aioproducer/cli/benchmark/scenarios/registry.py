"""The scenarios by the names that `--only` takes, in the order they run."""

from collections.abc import Awaitable, Callable, Mapping

from aioproducer.cli.benchmark.bench_run import Bench
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.scenarios.arrow import arrow
from aioproducer.cli.benchmark.scenarios.copying import copying
from aioproducer.cli.benchmark.scenarios.enqueue import enqueue
from aioproducer.cli.benchmark.scenarios.hooks import hooks
from aioproducer.cli.benchmark.scenarios.import_time import import_time
from aioproducer.cli.benchmark.scenarios.latency import latency
from aioproducer.cli.benchmark.scenarios.loop_lag import loop_lag
from aioproducer.cli.benchmark.scenarios.partitions import partitions
from aioproducer.cli.benchmark.scenarios.stalled import stalled
from aioproducer.cli.benchmark.scenarios.tasks import tasks
from aioproducer.cli.benchmark.scenarios.transactions import transactions

SCENARIOS: Mapping[str, Callable[[Bench], Awaitable[ScenarioReport]]] = {
    "enqueue": enqueue,
    "hooks": hooks,
    "arrow": arrow,
    "tasks": tasks,
    "latency": latency,
    "transactions": transactions,
    "copying": copying,
    "partitions": partitions,
    "stalled": stalled,
    "loop-lag": loop_lag,
    "import": import_time,
}
