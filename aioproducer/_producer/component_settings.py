"""The settings of each part, taken from the configuration; milliseconds become seconds here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.open_batches import AccumulatorSettings
from aioproducer._accumulator.partition import BatchOptions
from aioproducer._accumulator.wait_queues import WaitingLimits
from aioproducer._network.context import NetworkSettings
from aioproducer._network.metadata_refresher import MetadataSettings
from aioproducer._network.routes import Routes
from aioproducer._protocol.compression import CompressionType
from aioproducer._sender.produce_outcome import Policy
from aioproducer._timing.retry_backoff import ExponentialBackoff, RandomSource
from aioproducer._version import VERSION
from aioproducer.config._network_types import read_proxy
from aioproducer.security import Secret

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

BATCHES_IN_BUFFER: Final = 16
"""Least number of full batches in the buffer. With fewer, partitions cannot wait for the memory of a whole batch, and
open small batches in the memory that comes back, each of which costs the work of a request."""

SMALL_BATCH: Final = 16_384  # Kafka's own `batch.size`; with a smaller batch size a buffer may hold as few as four


def accumulator_settings(config: ProducerConfig) -> AccumulatorSettings:
    """Return the settings of the accumulator.

    A batch of several records takes at most a quarter of the buffer, or a sixteenth of a large one; a record takes at
    most three quarters.
    """
    buffer = config.buffer_memory
    max_record_size = min(config.max_request_size, buffer // 4 * 3)
    limited_by_request = max_record_size == config.max_request_size
    is_adaptive = config.partitioner_adaptive_partitioning_enable
    return AccumulatorSettings(
        batch_size=min(config.batch_size, buffer // 4, max(buffer // BATCHES_IN_BUFFER, SMALL_BATCH)),
        max_record_size=max_record_size,
        max_record_option="max_request_size" if limited_by_request else "buffer_memory",
        max_in_flight=config.max_in_flight_requests_per_connection if config.enable_idempotence else 1,
        max_request_size=config.max_request_size,
        is_adaptive=is_adaptive,
        availability_timeout_s=config.partitioner_availability_timeout_ms / 1000 if is_adaptive else 0.0,  # as in Kafka
        rack=config.client_rack if config.partitioner_rack_aware else None,
        is_transactional=config.transactional_id is not None,
    )


def batch_options(config: ProducerConfig) -> BatchOptions:
    """Return the options of the batches of the producer, or of one topic."""
    codec = CompressionType[config.compression_type.upper()]
    levels = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }
    return BatchOptions(
        linger_s=config.linger_ms / 1000,
        delivery_timeout_s=config.delivery_timeout_ms / 1000,
        codec=codec,
        level=levels.get(codec),
    )


def network_settings(config: ProducerConfig) -> NetworkSettings:
    return NetworkSettings(
        request_timeout_ms=config.request_timeout_ms,
        max_in_flight=config.max_in_flight_requests_per_connection,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
        refusal_pause_max_ms=config.sasl_login_retry_backoff_max_ms,
        software_version=VERSION,
        routes=Routes(
            address_map=config.address_map,
            allowed_brokers=config.allowed_brokers,
            proxy=partial(read_proxy, config.proxy_url) if isinstance(config.proxy_url, Secret) else config.proxy_url,
            uses_canonical_names=config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only",
        ),
    )


def metadata_settings(config: ProducerConfig) -> MetadataSettings:
    return MetadataSettings(
        metadata_max_age_ms=config.metadata_max_age_ms,
        metadata_max_idle_ms=config.metadata_max_idle_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        metadata_recovery_rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
    )


def waiting_limits(config: ProducerConfig) -> WaitingLimits:
    """Return the limits of the wait queues; the delivery time-out of the topic counts too."""
    return WaitingLimits(
        max_records=config.max_waiting_records,
        max_bytes=config.max_waiting_bytes,
        max_block_s=config.max_block_ms / 1000,
    )


def produce_policy(config: ProducerConfig) -> Policy:
    return Policy(
        acks=config.acks,
        is_idempotent=config.enable_idempotence,
        retries=config.retries,
        is_transactional=config.transactional_id is not None,
    )


def retry_backoff(config: ProducerConfig, random: RandomSource) -> ExponentialBackoff:
    return ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random=random)
