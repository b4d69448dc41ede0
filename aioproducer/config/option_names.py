"""Option names: Kafka's spelling and ours, and what to say of a name that is no option here."""

from collections.abc import Collection, Mapping
from typing import NoReturn

from aioproducer.errors import ConfigurationError, ConfigurationTypeError

# Options of Kafka that a name or prefix begins with, and why there are none of them here.
_NOT_HERE: Mapping[str, str] = {
    "ssl_": "TLS is not supported in this version",
    "sasl_": "SASL is not supported in this version",
    "security_providers": "it names Java classes",
    "transaction_two_phase_commit_enable": "two-phase commit is not supported in this version",
    "client_dns_lookup": "all addresses of a name are tried, as Kafka's default does",
    "client_rack": "rack-aware partitioning is not supported in this version",
    "bootstrap_resolve_timeout_ms": "names are resolved at start, within max_block_ms",
    "buffer_memory_allocation_strategy": "batches always grow on demand",
    "partitioner_class": "pass an object as partitioner=",
    "partitioner_availability_timeout_ms": "partitions without a leader are avoided, without a time-out to set",
    "partitioner_rack_aware": "rack-aware partitioning is not supported in this version",
    "interceptor_classes": "pass objects as interceptors=",
    "metadata_recovery_strategy": "the producer always bootstraps again, as Kafka's default does",
    "metadata_cluster_check_enable": "it is not supported in this version",
    "enable_metrics_push": "metrics are read with Producer.statistics(), never pushed to brokers",
    "metric_reporters": "metrics are read with Producer.statistics()",
    "metrics_": "metrics are read with Producer.statistics(), which keeps totals only",
    "auto_include_jmx_reporter": "there is no JMX here",
    "config_providers": "they are Java classes",
    # of other Python clients
    "loop": "the producer binds to the running event loop at start",
    "api_version": "versions are negotiated with each broker",
}


def check_properties(properties: object) -> None:
    """Refuse what is no mapping.

    Raises:
        ConfigurationTypeError: it is none.
    """
    if not isinstance(properties, Mapping):
        text = f"properties must be a mapping of names to values, not {type(properties).__name__}"
        raise ConfigurationTypeError(text)


def in_python_spelling(options: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Return the options under their Python names, `linger_ms` for `linger.ms`.

    Args:
        options: names in either spelling.
        known: the names of all options, in Python spelling.

    Raises:
        ConfigurationError: an option in both spellings.
        ConfigurationTypeError: a name that is no text, or no option here; says why, or which is nearest.
    """
    result: dict[str, object] = {}
    for given, value in options.items():
        if not isinstance(given, str):
            raise ConfigurationTypeError(f"the name of an option must be a str, not {type(given).__name__} ({given!r})")
        name = given.replace(".", "_")
        if name not in known:
            _refuse_name(given, name, known)
        if name in result:
            raise ConfigurationError(f"{name} is given twice, as {name!r} and {kafka_name(name)!r}", option=name)
        result[name] = value
    return result


def kafka_name(name: str) -> str:
    """Return an option's name as Kafka spells it."""
    return name.replace("_", ".")


def _refuse_name(given: str, name: str, known: Collection[str]) -> NoReturn:
    for prefix, reason in _NOT_HERE.items():
        if name == prefix or (prefix.endswith("_") and name.startswith(prefix)):
            raise ConfigurationTypeError(f"aioproducer has no option {given!r}: {reason}", option=name)
    from difflib import get_close_matches  # noqa: PLC0415  # only for what is wrong

    nearest = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    if not nearest:
        raise ConfigurationTypeError(f"there is no option {given!r}", option=name)
    meant = kafka_name(nearest[0]) if "." in given else nearest[0]
    raise ConfigurationTypeError(f"there is no option {given!r}; did you mean {meant!r}?", option=name)
