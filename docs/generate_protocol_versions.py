"""Writes `reference/protocol_versions.md` from the versions that the producer and the embedded cluster speak.

Run it after changing one of these: `python docs/generate_protocol_versions.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

from pathlib import Path
from typing import Final

from aioproducer._protocol.api_versions import ApiVersions
from aioproducer._protocol.messages import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, Api
from aioproducer._protocol.telemetry_messages import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from aioproducer._protocol.transaction_admin_messages import DESCRIBE_TRANSACTIONS
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing.fake_broker.version_profiles import PROFILES, VersionProfile

PAGE = Path(__file__).parent / "reference" / "protocol_versions.md"

APIS: Final = (
    API_VERSIONS,
    METADATA,
    INIT_PRODUCER_ID,
    PRODUCE,
    FIND_COORDINATOR,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    TXN_OFFSET_COMMIT,
    END_TXN,
    DESCRIBE_TRANSACTIONS,
    OFFSET_FETCH,
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
)

_INTRODUCTION = """\
<!-- Written by docs/generate_protocol_versions.py from messages.py and version_profiles.py: change them there. -->

# Protocol versions

The producer sends four kinds of requests, seven more for transactions, and two to push metrics.
When it connects to a broker, it chooses the highest version of each that both support.
Nothing needs to be configured, and brokers of several versions in one cluster are fine.

| request | key | versions here | tagged fields from | what it is for |
| --- | --: | --- | --: | --- |
"""

_PURPOSES: Final = {
    API_VERSIONS: "which versions a broker speaks; asked first on each connection",
    METADATA: "brokers, topics, partitions and leaders, of the topics in use",
    INIT_PRODUCER_ID: "a producer id, for idempotence and of a transactional id",
    PRODUCE: "the records; in a transaction at most 11 or at least 12, by the cluster's `transaction.version`",
    FIND_COORDINATOR: "which broker coordinates a transactional id, or a group",
    ADD_PARTITIONS_TO_TXN: "transactions V1: before the first Produce to a partition; from 4 on for brokers alone",
    ADD_OFFSETS_TO_TXN: "transactions V1: before the offsets of a group",
    TXN_OFFSET_COMMIT: "offsets that become valid with a transaction",
    END_TXN: "commit or abort",
    DESCRIBE_TRANSACTIONS: "whether a successor has a transaction open, before an identity in doubt is renewed",
    OFFSET_FETCH: "where a group stands, for `committed_offsets`",
    GET_TELEMETRY_SUBSCRIPTIONS: "which metrics brokers want; only those with a plug-in for metrics list it",
    PUSH_TELEMETRY: "the metrics, with `enable_metrics_push`",
}

_BETWEEN = """
## With which Kafka

The versions that are used with each release.
Those of 4.4.0, 4.3.1 and 3.9.1 were read from running brokers, and the whole suite runs on 4.4.0 and 3.9.1;
the others are profiles of the embedded cluster, made from the request schemas of those releases.

"""

_END = """
- **Tested on real Kafka:** 3.9.1 and 4.4.0, every release of this library.
- **Tested by version profile only:** 4.3.1, on which the figures of these pages were measured, and older ones,
  down to 2.1.
  The embedded cluster then lists their versions and follows the few rules that differ,
  such as a producer id that must begin with sequence 0 before 2.5 (KIP-360).
  No such broker was tried.
- **Older than 2.1:** not supported.
  A broker that speaks none of the versions above is refused when it is connected to,
  with an `UnsupportedVersionError` that says which request and which versions.

## What versions change

| version | what it brings |
| --- | --- |
| Produce 3 | record batches of format 2, the only format written here |
| Produce 5 | the start offset of the log in the answer |
| Produce 7 | zstd may be used |
| Produce 8 | the records that a broker refuses are named (KIP-467): the others are sent again without them |
| Produce 9 | compact lengths and tagged fields (KIP-482) |
| Produce 10 | a refusal names the new leader and its address (KIP-951): no metadata request is needed |
| Produce 12 | with transactions a different meaning (KIP-890); without them the same as 11 |
| Produce 13 | topics by id (KIP-516): a topic created again under its name is another one; 12 while an id is unknown |
| Metadata 7 | leader epochs: old metadata about leaders is recognized |
| Metadata 10 | topic ids |
| Metadata 13 | an error for the whole response: start again from the bootstrap servers (KIP-1102) |

Kafka 4.4 has two newer versions that are not used.
TxnOffsetCommit 6 names topics by id (KIP-1319), which a producer does not know of the topics that its consumer reads.
ApiVersions 5 says which node is meant (KIP-1242): a record that reaches another cluster than it was meant for
is refused there without it, because Produce 13 names topics by an id that no other cluster has.

Brokers from 4.0 on list Produce versions from 0 and refuse 0 to 2 (KAFKA-18659): choosing the highest is safe.
A broker that does not know the requested version of ApiVersions
answers with error 35 in the form of version 0, and is asked again in that version.
"""


def render() -> str:
    """Return the whole page."""
    head = "| request | " + " | ".join(PROFILES) + " |\n| --- |" + " --: |" * len(PROFILES) + "\n"
    agreed = "".join(_agreed_row(api) for api in APIS)
    return _INTRODUCTION + "".join(_row(api) for api in APIS) + _BETWEEN + head + agreed + _END


def _row(api: Api) -> str:
    versions = f"{api.min_version} to {api.max_version}"
    return f"| {api.name} | {api.key} | {versions} | {api.first_flexible} | {_PURPOSES[api]} |\n"


def _agreed_row(api: Api) -> str:
    return f"| {api.name} | " + " | ".join(_agreed(api, profile) for profile in PROFILES.values()) + " |\n"


def _agreed(api: Api, profile: VersionProfile) -> str:
    listed = {int(key): versions for key, versions in profile.versions.items()}
    try:
        return str(ApiVersions(listed).highest_common(api))
    except UnsupportedVersionError:
        return "-"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), "utf-8")
