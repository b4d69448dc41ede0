"""Clusters that stand in for the Kafka of clouds, and enforce what the services do.

Source: the vendors' documentation; com.google.cloud.hosted.kafka.auth of Google; aws-msk-iam-sasl-signer of AWS.
"""

import base64
import json
import urllib.parse
from collections.abc import Callable, Mapping

from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token

TOKEN = "ya29.canary-token"  # of the stand-in of google-auth

EVENT_HUBS_BYTES = 1_046_528
CONFLUENT_EXTENSIONS = {"logicalCluster": "lkc-12345", "identityPoolId": "pool-12345"}
OF_GOOGLE = ("billing@project.iam.gserviceaccount.com", "billing@example.com")
PASSWORD = "canary-of-the-page"
GOOGLE_KEY = b'{"type": "service_account", "canary": "of-the-page"}'
CONFLUENT = "pkc-12345.eu-central-1.aws.confluent.cloud"
EVENT_HUBS = "mynamespace.servicebus.windows.net"
GOOGLE = "bootstrap.mycluster.europe-west1.managedkafka.myproject.cloud.goog"
MSK = "b-1.mycluster.abc123.kafka.eu-central-1.amazonaws.com"
HEROKU = "ec2-1.compute-1.amazonaws.com"
OTHERS = (
    "kafka-1",
    "mykafka-myproject.aivencloud.com",
    "mycluster-kafka-bootstrap",
    "seed-12345.mycluster.fmc.prd.cloud.redpanda.com",
    "db-kafka-fra1-12345-do-user-1-0.db.ondigitalocean.com",
)

CheckToken = Callable[[str, Mapping[str, str]], str | None]


def user_of_confluent(token: str, extensions: Mapping[str, str]) -> str | None:
    return "billing" if extensions == CONFLUENT_EXTENSIONS and token == PAGE_TOKEN else None


def user_of_google(token: str, extensions: Mapping[str, str]) -> str | None:
    """Return the principal of a header, claims, and then the access token."""
    if token.count(".") != 2 or token.startswith("ya29."):
        return None
    header, claims, access_token = map(_decoded, token.split("."))
    says = json.loads(claims)
    is_right = json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} and access_token == TOKEN
    is_valid = says["iat"] < says["exp"] and says["sub"] in OF_GOOGLE
    return str(says["sub"]) if is_right and is_valid and not extensions else None


def user_of_msk(token: str, extensions: Mapping[str, str]) -> str | None:
    """Return the access key of a signed URL."""
    url = urllib.parse.urlsplit(_decoded(token))
    query = dict(urllib.parse.parse_qsl(url.query))
    key, _, scope = query["X-Amz-Credential"].partition("/")
    is_right = (url.hostname, query["Action"]) == ("kafka.eu-central-1.amazonaws.com", "kafka-cluster:Connect")
    is_signed = scope.endswith("/eu-central-1/kafka-cluster/aws4_request") and len(query["X-Amz-Signature"]) == 64
    return key if is_right and is_signed and int(query["X-Amz-Expires"]) <= 900 and not extensions else None


def _decoded(part: str) -> str:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()


PAGE_TOKEN = unsecured_token("billing")
CHECKS: Mapping[str, CheckToken] = {CONFLUENT: user_of_confluent, GOOGLE: user_of_google, MSK: user_of_msk}
USERS: Mapping[str, Mapping[str, str]] = {
    CONFLUENT: {"API key": PASSWORD},
    EVENT_HUBS: {"$ConnectionString": PASSWORD},
    GOOGLE: {"billing@myproject.iam.gserviceaccount.com": base64.b64encode(GOOGLE_KEY).decode()},
    MSK: {"billing": PASSWORD},
}


def stand_in(service: str, authority: CertificateAuthority) -> FakeCluster:
    """A cluster for a service; others than the clouds have one together.

    Args:
        service: the host of the page.
        authority: of the certificate, which is for that host, but for Heroku's.
    """
    names = {MSK: (MSK,), HEROKU: ("broker.internal",)}.get(service, (service,) if service else OTHERS)
    names += () if service == HEROKU else ("localhost",)
    security = ClusterSecurity(
        users=USERS.get(service, {"billing": PASSWORD, "doadmin": PASSWORD}),
        authority=authority,
        broker_certificate=authority.issue(*names, common_name="broker"),
        check_token=CHECKS.get(service),
    )
    largest = EVENT_HUBS_BYTES if service == EVENT_HUBS else 100 * 1024 * 1024
    return FakeCluster(1, topics={"orders": 12}, security=security, max_request_bytes=largest)
