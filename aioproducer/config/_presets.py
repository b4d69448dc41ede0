"""The presets of `ProducerConfig`; docs/reference/configuration.md shows what each is measured to bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, Unpack

from aioproducer.config.producer_options import ProducerOptions

LOW_LATENCY: Final[ProducerOptions] = {"linger_ms": 0, "compression_type": "none"}

THROUGHPUT: Final[ProducerOptions] = {
    "linger_ms": 50,
    "batch_size": 1_048_576,
    "max_request_size": 4_194_304,
    "buffer_memory": 134_217_728,
    "compression_type": "lz4",
    "compression_lz4_level": 1,
}

DURABLE: Final[ProducerOptions] = {
    "acks": "all",
    "enable_idempotence": True,
    "delivery_timeout_ms": 900_000,
    "max_block_ms": 300_000,
    "close_timeout_ms": 120_000,
    "exit_flush_timeout_ms": 10_000,
}


class Presets:
    """Classmethods of `ProducerConfig` that begin with other values than the defaults."""

    __slots__ = ()

    @classmethod
    def low_latency(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration whose records leave at once, also those that no one awaits.

        Args:
            bootstrap_servers: as the field.
            options: as the constructor's; they take precedence.

        Raises:
            ConfigurationError, ConfigurationTypeError: as the constructor.
        """
        return cls._preset(LOW_LATENCY, bootstrap_servers, options)

    @classmethod
    def throughput(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration with few, large, compressed batches; arguments and errors as `low_latency`."""
        return cls._preset(THROUGHPUT, bootstrap_servers, options)

    @classmethod
    def durable(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration that rides out long outages; arguments and errors as `low_latency`.

        Records are given up after 15 minutes, not two, and `acks` other than `"all"` is an error.
        """
        return cls._preset(DURABLE, bootstrap_servers, options)

    if TYPE_CHECKING:

        @classmethod
        def _preset(cls, preset: ProducerOptions, bootstrap_servers: object, options: ProducerOptions) -> Self:
            """Return the configuration of a preset, changed by options."""
