"""For tests of code that sends to Kafka: `FakeCluster`, in-process brokers over real TCP, with faults; `MockProducer`.

The brokers' logic is sans-IO (bytes in, bytes out, `now` given) in `fake_broker/`, and a thin TCP shell serves it.
"""

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing.certificates import Certificate, CertificateAuthority
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker.client_metrics import MetricsSubscription
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.exchange import SeenRequest
from aioproducer.testing.fake_broker.faults import Fault, FaultKind, Faults, Where
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from aioproducer.testing.fake_broker.security import SeenAuthentication
from aioproducer.testing.fake_broker.settings import FakeClusterOptions
from aioproducer.testing.fake_broker.topic_configs import TopicRefusedError
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_cluster import FakeCluster, ThreadedFakeCluster
from aioproducer.testing.mock_producer import MockProducer
from aioproducer.testing.tokens import TokenSigner, unsecured_token

__all__ = [
    "ApiKey",
    "Certificate",
    "CertificateAuthority",
    "ClusterSecurity",
    "CoordinatorKind",
    "ErrorCode",
    "FakeCluster",
    "FakeClusterOptions",
    "Fault",
    "FaultKind",
    "Faults",
    "LoggedRecord",
    "MetricsSubscription",
    "MockProducer",
    "SeenAuthentication",
    "SeenRequest",
    "ThreadedFakeCluster",
    "TokenSigner",
    "TopicRefusedError",
    "Where",
    "unsecured_token",
]
