"""The function that serves each API."""

from collections.abc import Callable
from typing import TypeAlias

from aioproducer.testing.fake_broker.apis import (
    configs,
    fetch,
    find_coordinator,
    group_offsets,
    groups,
    leadership,
    metadata,
    produce,
    sasl,
    telemetry,
    topic_admin,
    transactions,
)
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

Answer: TypeAlias = Callable[[Exchange], None]

ANSWERS: dict[ApiKey, Answer] = {
    ApiKey.PRODUCE: produce.answer_produce,
    ApiKey.FETCH: fetch.answer_fetch,
    ApiKey.LIST_OFFSETS: fetch.answer_list_offsets,
    ApiKey.METADATA: metadata.answer_metadata,
    ApiKey.OFFSET_COMMIT: group_offsets.answer_offset_commit,
    ApiKey.OFFSET_FETCH: group_offsets.answer_offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator.answer_find_coordinator,
    ApiKey.JOIN_GROUP: groups.answer_join_group,
    ApiKey.HEARTBEAT: groups.answer_heartbeat,
    ApiKey.LEAVE_GROUP: groups.answer_leave_group,
    ApiKey.SYNC_GROUP: groups.answer_sync_group,
    ApiKey.DESCRIBE_GROUPS: groups.answer_describe_groups,
    ApiKey.LIST_GROUPS: groups.answer_list_groups,
    ApiKey.SASL_HANDSHAKE: sasl.answer_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl.answer_sasl_authenticate,
    ApiKey.API_VERSIONS: metadata.answer_api_versions,
    ApiKey.CREATE_TOPICS: topic_admin.answer_create_topics,
    ApiKey.DELETE_TOPICS: topic_admin.answer_delete_topics,
    ApiKey.DELETE_RECORDS: topic_admin.answer_delete_records,
    ApiKey.INIT_PRODUCER_ID: transactions.answer_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: leadership.answer_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.answer_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.answer_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.answer_end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.answer_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: group_offsets.answer_txn_offset_commit,
    ApiKey.DESCRIBE_CONFIGS: configs.answer_describe_configs,
    ApiKey.ALTER_CONFIGS: configs.answer_alter_configs,
    ApiKey.CREATE_PARTITIONS: topic_admin.answer_create_partitions,
    ApiKey.DELETE_GROUPS: groups.answer_delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.answer_incremental_alter_configs,
    ApiKey.DESCRIBE_PRODUCERS: transactions.answer_describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.answer_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.answer_list_transactions,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.answer_get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: telemetry.answer_push_telemetry,
}
