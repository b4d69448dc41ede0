"""Checks `--kafka VERSION` before anything is started."""

from aioproducer.cli.running import usage_error
from aioproducer.testing.kafka import BrokerStartError, MissingToolError
from aioproducer.testing.kafka.kafka_jars import require_kafka_prerequisites


def require_kafka(version: str) -> None:
    try:
        require_kafka_prerequisites(version)
    except MissingToolError as missing:
        usage_error(missing.missing)
    except BrokerStartError as error:
        usage_error(str(error))
