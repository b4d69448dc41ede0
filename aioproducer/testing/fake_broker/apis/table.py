"""Which function answers which request."""

from collections.abc import Callable
from typing import TypeAlias

from aioproducer.testing.fake_broker.apis.api_versions import answer_api_versions
from aioproducer.testing.fake_broker.apis.configs import (
    answer_alter_configs,
    answer_describe_configs,
    answer_incremental_alter_configs,
)
from aioproducer.testing.fake_broker.apis.fetch import answer_fetch
from aioproducer.testing.fake_broker.apis.find_coordinator import answer_find_coordinator
from aioproducer.testing.fake_broker.apis.group_admin import (
    answer_delete_groups,
    answer_describe_groups,
    answer_list_groups,
)
from aioproducer.testing.fake_broker.apis.group_offsets import (
    answer_offset_commit,
    answer_offset_fetch,
    answer_txn_offset_commit,
)
from aioproducer.testing.fake_broker.apis.groups import (
    answer_heartbeat,
    answer_join_group,
    answer_leave_group,
    answer_sync_group,
)
from aioproducer.testing.fake_broker.apis.leader_epochs import answer_offset_for_leader_epoch
from aioproducer.testing.fake_broker.apis.list_offsets import answer_list_offsets
from aioproducer.testing.fake_broker.apis.metadata import answer_metadata
from aioproducer.testing.fake_broker.apis.produce import answer_produce
from aioproducer.testing.fake_broker.apis.topic_admin import (
    answer_create_partitions,
    answer_create_topics,
    answer_delete_records,
    answer_delete_topics,
)
from aioproducer.testing.fake_broker.apis.transaction_admin import (
    answer_describe_producers,
    answer_describe_transactions,
    answer_list_transactions,
    answer_write_txn_markers,
)
from aioproducer.testing.fake_broker.apis.transactions import (
    answer_add_offsets_to_txn,
    answer_add_partitions_to_txn,
    answer_end_txn,
    answer_init_producer_id,
)
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

Answer: TypeAlias = Callable[[Exchange], None]

_ANSWERS: dict[ApiKey, Answer] = {
    ApiKey.PRODUCE: answer_produce,
    ApiKey.FETCH: answer_fetch,
    ApiKey.LIST_OFFSETS: answer_list_offsets,
    ApiKey.METADATA: answer_metadata,
    ApiKey.OFFSET_COMMIT: answer_offset_commit,
    ApiKey.OFFSET_FETCH: answer_offset_fetch,
    ApiKey.FIND_COORDINATOR: answer_find_coordinator,
    ApiKey.JOIN_GROUP: answer_join_group,
    ApiKey.HEARTBEAT: answer_heartbeat,
    ApiKey.LEAVE_GROUP: answer_leave_group,
    ApiKey.SYNC_GROUP: answer_sync_group,
    ApiKey.DESCRIBE_GROUPS: answer_describe_groups,
    ApiKey.LIST_GROUPS: answer_list_groups,
    ApiKey.API_VERSIONS: answer_api_versions,
    ApiKey.CREATE_TOPICS: answer_create_topics,
    ApiKey.DELETE_TOPICS: answer_delete_topics,
    ApiKey.DELETE_RECORDS: answer_delete_records,
    ApiKey.INIT_PRODUCER_ID: answer_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: answer_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: answer_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: answer_add_offsets_to_txn,
    ApiKey.END_TXN: answer_end_txn,
    ApiKey.WRITE_TXN_MARKERS: answer_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: answer_txn_offset_commit,
    ApiKey.DESCRIBE_CONFIGS: answer_describe_configs,
    ApiKey.ALTER_CONFIGS: answer_alter_configs,
    ApiKey.CREATE_PARTITIONS: answer_create_partitions,
    ApiKey.DELETE_GROUPS: answer_delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: answer_incremental_alter_configs,
    ApiKey.DESCRIBE_PRODUCERS: answer_describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: answer_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: answer_list_transactions,
}


def answer_of(api: ApiKey) -> Answer:
    return _ANSWERS[api]
