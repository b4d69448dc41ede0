"""Options of a connection with a canary in each secret."""

CANARY = "canary-of-spark"
SECRETS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}-jaas";'
    ),
    "kafka.ssl.keystore.type": "PEM",
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}-key\n-----END PRIVATE KEY-----",
    "kafka.ssl.keystore.certificate.chain": (f"-----BEGIN CERTIFICATE-----\n{CANARY}-chain\n-----END CERTIFICATE-----"),
    "kafka.ssl.key.password": f"{CANARY}-password",
}

TOKENS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.token.provider": f"tests.spark.functions.secret_options:Tokens secret={CANARY}-token",
}


class Tokens:
    """A provider that gets a secret by its text, as it should not."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    async def token(self) -> str:
        """Return the secret."""
        return self._secret
