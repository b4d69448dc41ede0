"""Ways to connect to a secured test cluster, and the security that its tests share."""

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.testing.cluster_security import ClusterSecurity

SECURITY = ClusterSecurity()
SHORT_SESSIONS = ClusterSecurity(
    users={"alice": "alice-secret", "bob": "bob-secret", "ligature": "\ufb01rst"}, session_lifetime_ms=3000
)

WAYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tls": ("SSL", ""),
        "mtls": ("MTLS", ""),
        "plain": ("SASL_PLAINTEXT", "PLAIN"),
        "scram-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        "scram-512": ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        "oauth": ("SASL_PLAINTEXT", "OAUTHBEARER"),
        "tls-plain": ("SASL_SSL", "PLAIN"),
        "tls-scram-256": ("SASL_SSL", "SCRAM-SHA-256"),
        "tls-scram-512": ("SASL_SSL", "SCRAM-SHA-512"),
        "tls-oauth": ("SASL_SSL", "OAUTHBEARER"),
        "mtls-scram-512": ("SASL_MTLS", "SCRAM-SHA-512"),
        "signed-oauth": ("SIGNED", "OAUTHBEARER"),
    }
)
"""Listener and mechanism of each way to connect."""
