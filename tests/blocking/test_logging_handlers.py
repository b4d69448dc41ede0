"""Handlers of `logging` that send their lines to Kafka: each program ends, with any lock they hold.

Each handler is called with its own lock held, and `dictConfig` closes handlers with the module's lock held. Our own
events want both locks.
"""

import pytest

from tests.blocking.programs import run
from tests.fakes.producing import ClusterElsewhere

HANDLER = """
import logging, logging.config, sys
from aioproducer import BlockingProducer

class Handler(logging.Handler):
    def __init__(self, verb, starts):
        super().__init__()
        self.verb, self.producer = verb, None
        if starts:
            self.start()

    def start(self):
        self.producer = BlockingProducer(sys.argv[1], max_block_ms=10_000).start()

    def emit(self, record):
        if self.producer is None:
            self.start()
        if sends_all or not record.name.startswith("aioproducer"):
            getattr(self.producer, self.verb)("orders", self.format(record).encode())

    def close(self):
        if self.producer is not None:
            self.producer.close(10)
        super().close()

verb, when, level = sys.argv[2:5]
sends_all = sys.argv[5:] == ["all"]
logging.getLogger().setLevel(level)
"""

BY_HAND = """
handler = Handler(verb, starts=when == "before")
logging.getLogger().addHandler(handler)
for line in "abc":
    logging.warning(line)
logging.shutdown()  # as at the interpreter's end
print("end", flush=True)
"""

BY_CONFIG = """
def configure(handlers):
    root = {"level": level, "handlers": list(handlers)}
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "handlers": handlers, "root": root})

configure({"kafka": {"()": Handler, "verb": verb, "starts": when == "before"}})
for line in "abc":
    logging.warning(line)
configure({})
print("end", flush=True)
"""


@pytest.mark.parametrize("when", ["before", "in emit"])
@pytest.mark.parametrize("verb", ["enqueue", "send"])
@pytest.mark.parametrize("program", [BY_HAND, BY_CONFIG], ids=["closed by shutdown", "closed by dictConfig"])
def test_handler_sends_its_lines(cluster: ClusterElsewhere, *, program: str, verb: str, when: str) -> None:
    """At the level where the library and asyncio log most."""
    ended = run(HANDLER + program, cluster.bootstrap_servers, verb, when, "DEBUG")

    assert (ended.stdout, ended.stderr, ended.returncode) == ("end\n", "", 0)
    assert sorted(value for value in cluster.values() if value in {b"a", b"b", b"c"}) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("verb", ["enqueue", "send"])
def test_handler_of_our_own_events_ends_too(cluster: ClusterElsewhere, verb: str) -> None:
    ended = run(HANDLER + BY_HAND, cluster.bootstrap_servers, verb, "in emit", "DEBUG", "all")

    assert (ended.stdout, ended.returncode) == ("end\n", 0), ended.stderr
    assert {b"a", b"b", b"c"} <= set(cluster.values())
