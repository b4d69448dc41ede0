"""Processes of a session, and their transactional ids."""

from collections.abc import Mapping
from types import MappingProxyType

from tests.integrations.worker_program import WorkerOrders
from tests.programs.chaos.arena import Arena
from tests.programs.chaos.tied_process import TiedProcess
from tests.programs.chaos.transacting.bank import TELLER
from tests.programs.chaos.transacting.completing import COMPLETER
from tests.programs.chaos.transacting.connection import connection_text

TOPIC, INPUT, OUTPUT = "chaos-transactions", "chaos-input", "chaos-input-out"
BANK = "chaos-bank"
INPUT_PARTITIONS = 4
COPIER = "copier"
PREPARED = 4  # transactions that each preparing process leaves
PRODUCERS = 32  # producers of each process that has its ids for itself: simultaneous transactions load brokers best

IDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "alone-1": tuple(f"alone-1-{number}" for number in range(PRODUCERS)),
        "alone-2": tuple(f"alone-2-{number}" for number in range(PRODUCERS)),
        "rival-1": ("rivals",),
        "rival-2": ("rivals",),
        TELLER: (TELLER,),
        COMPLETER: tuple(f"prepared-{number}" for number in range(PREPARED)),
    }
)
"""Transactional ids by process; the copier's is another program's choice."""

ALL_IDS = (*dict.fromkeys(each for ids in IDS.values() for each in ids), f"{INPUT}-{COPIER}")


WITHOUT_SECURITY = (COPIER, TELLER, COMPLETER)
"""Processes with consumers or children: where producers authenticate, these connect to brokers directly."""


def start(name: str, arena: Arena, *, copies: int, life: int) -> TiedProcess:
    log_file = arena.folder / f"printed-{name}-{life}.log"
    if arena.client_options and name in WITHOUT_SECURITY:
        servers = arena.cluster.bootstrap_servers
    else:
        servers = connection_text(arena.bootstrap, arena.client_options)
    if name == COPIER:
        orders = WorkerOrders(servers, INPUT, name, copies, batch=10, pause_s=0.02)
        return TiedProcess(*orders.command()[2:], log_file=log_file)
    topic = BANK if name == TELLER else TOPIC
    arguments = (str(arena.folder), servers, topic, name, *IDS[name])
    return TiedProcess("tests.programs.chaos.transacting", *arguments, log_file=log_file)
