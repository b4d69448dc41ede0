"""Names of what the simulation and the chaos checker check: what each demands."""

from collections.abc import Mapping
from typing import Final

INVARIANTS: Final[Mapping[str, str]] = {
    # records and logs
    "LOST": "acknowledged records are in the log",
    "NOT_WRITTEN": "records reported as NOT_WRITTEN are not in the log",
    "DUPLICATE": "no record is in the log twice",
    "FOREIGN": "nothing else is in the log, and nothing is altered",
    "ORDER": "records of a partition are in the order of the calls, in the log and in callbacks",
    "RECORD_METADATA": "reported offsets, timestamps and partitions are those of the log",
    "ENDS_ONCE": "every record ends exactly once, and in time",
    "STATE": "every record is counted in one place, and none when all have ended",
    "NEEDLESS_FAILURE": "no record fails without a cause in the plan",
    "RECOVERY": "the first acknowledgement comes soon after healing",
    "CALM": "without a fault everything is acknowledged",
    # transactions
    "ATOMIC": "transactions are visible whole or not at all, committed ones are, aborted ones never",
    "TRANSACTION_END": "a transaction ended as its caller was told",
    "JOINED_END": "a commit or abort that is asked for again joins the one under way",
    "ONE_TRANSACTION": "a commit marker ends one transaction",
    "OFFSETS": "offsets are committed if and only if the records made from them are visible",
    "FENCED": "nothing that a fenced producer wrote becomes visible",
    "FORGOTTEN": "nothing becomes visible of a producer that the brokers have forgotten",
    "MISUSE": "a call that the state forbids is refused",
    "LSO": "read_committed readers get on after the last close",
    # on the wire
    "SEQUENCE": "one producer id, epoch and sequence of a partition names one batch",
    "EPOCH": "a partition's epoch never goes back",
    "LEADER_EPOCH": "a leader epoch never goes back within one topic id",
    "IN_FLIGHT": "no more Produce requests are in flight than configured, and one before the first acknowledgement",
    "REQUEST_ORDER": "the requests of a transaction are in order",
    "SIZE": "no batch or request is larger than configured",
    "TIMES": "the latest timestamp of a batch header is that of its records",
    "SENT_BYTES": "bytes that the transport holds are not changed",
    "SOCKET": "sockets have the configured buffer sizes",
    "FRAME": "an invalid response closes its connection, and no other",
    "KIP-219": "a node that has asked for a pause gets none of the requests it excludes",
    "IDLE": "no connection is used after connections_max_idle_ms without use",
    # time
    "TIMEOUT": "every call ends within its timeout",
    "CLOSE": "close ends within its timeout",
    "PACE": "requests and connections are tried again after a pause, neither too short nor too long",
    "PAUSE": "pauses between attempts to connect grow as configured",
    "RETRIES": "no batch is sent more often than `retries` allows",
    "LINGER": "no batch is sent before it is due",
    "FULL": "a full batch is nearly batch_size",
    "OVERTAKEN": "the call that has waited longest for memory gets it first",
    "STUCK": "everything that can be sent is sent",
    "REST": "a producer with nothing to do does nothing",
    "AGE": "metadata is refreshed, and unused topics are forgotten, when they are too old",
    "FLUSH": "a flush waits for what was accepted before it, and reports what failed",
    # resources and reports
    "MEMORY": "what is held is counted, and nothing is held when nothing is under way",
    "LEAK": "no task and no connection is left after close",
    "EXCEPTION": "no call and no task raises what it must not",
    "LOGGED_ERROR": "no error is logged without a cause",
    "SECRECY": "no payload is in an event, an error or a repr",
    "HANG": "every run ends",
}
