"""How commands, and the driver of Spark, reach the cluster of a configuration beside its producers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from aioproducer._logs import event_log
from aioproducer._network.context import ClusterAccess, ConnectionSecurity
from aioproducer._producer.authentication import sasl_client
from aioproducer._producer.component_settings import connection_security, network_settings

if TYPE_CHECKING:
    import asyncio

    from aioproducer.config import ProducerConfig


def cluster_access(config: ProducerConfig) -> ClusterAccess:
    """Return the routes and the security of a configuration."""

    def security(loop: asyncio.AbstractEventLoop) -> ConnectionSecurity | None:
        return security_of(config, loop)

    return ClusterAccess(network_settings(config).routes, security)


def security_of(config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> ConnectionSecurity | None:
    """Return what connections do before the first request; None if they are plaintext."""
    log = event_log(config.client_id)
    jitter = random.Random()  # noqa: S311  # for pauses
    sasl = sasl_client(config, loop, wall_clock=None, random=jitter, log=log)
    return connection_security(config, log, sasl)
