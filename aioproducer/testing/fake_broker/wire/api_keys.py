"""Kafka's API numbers that the embedded cluster serves, and their flexible versions."""

from enum import IntEnum


class ApiKey(IntEnum):
    """The number of a request's API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72

    @property
    def schema_name(self) -> str:
        """Name of this API in the schemas: `list_offsets` for `LIST_OFFSETS`."""
        return self.name.lower()

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return version >= FIRST_FLEXIBLE_VERSION[self]


API_BY_NUMBER: dict[int, ApiKey] = {int(api): api for api in ApiKey}  # a look-up here is cheaper than `ApiKey(number)`
_FLEXIBLE_SINCE = {
    0: "DESCRIBE_PRODUCERS DESCRIBE_TRANSACTIONS LIST_TRANSACTIONS GET_TELEMETRY_SUBSCRIPTIONS PUSH_TELEMETRY",
    1: "WRITE_TXN_MARKERS INCREMENTAL_ALTER_CONFIGS",
    2: "SASL_AUTHENTICATE DELETE_RECORDS INIT_PRODUCER_ID ALTER_CONFIGS CREATE_PARTITIONS DELETE_GROUPS",
    3: """FIND_COORDINATOR LIST_GROUPS API_VERSIONS ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN
        TXN_OFFSET_COMMIT""",
    4: "HEARTBEAT LEAVE_GROUP SYNC_GROUP DELETE_TOPICS OFFSET_FOR_LEADER_EPOCH DESCRIBE_CONFIGS",
    5: "DESCRIBE_GROUPS CREATE_TOPICS",
    6: "LIST_OFFSETS OFFSET_FETCH JOIN_GROUP",
    8: "OFFSET_COMMIT",
    9: "PRODUCE METADATA",
    12: "FETCH",
    99: "SASL_HANDSHAKE",  # never
}
FIRST_FLEXIBLE_VERSION: dict[ApiKey, int] = {
    ApiKey[name]: version for version, names in _FLEXIBLE_SINCE.items() for name in names.split()
}
"""Requests have compact lengths and tagged fields from this version on."""
