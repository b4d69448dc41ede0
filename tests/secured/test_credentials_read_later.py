"""Secrets of variables and files that need not be there yet, and change while the producer runs."""

import pickle
from pathlib import Path

import pytest

from aioproducer import ConfigurationError, Producer, ProducerConfig
from aioproducer.security import Secret
from aioproducer.testing import ClusterSecurity, FakeCluster
from tests.fakes.proxies import working_proxy

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOPICS = {"orders": 1}


def login(password: str, user: str = "alice") -> str:
    return f'{SCRAM} username="{user}" password="{password}";'


def config_of(cluster: FakeCluster, jaas: Secret) -> ProducerConfig:
    return ProducerConfig(
        bootstrap_servers=cluster.secured_servers("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=jaas,
        max_block_ms=20_000,
    )


async def test_user_and_password_of_a_jaas_file_are_read_for_each_authentication(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    async with FakeCluster(1, topics=TOPICS, security=ClusterSecurity()) as cluster:
        config = config_of(cluster, Secret.from_file(path))
        path.write_text(login("alice-secret"), encoding="utf-8")
        async with Producer(config) as producer:
            await producer.send_and_wait("orders", b"x")
            path.write_text(login("bob-secret", "bob"), encoding="utf-8")
            cluster.delete_user("alice")
            cluster.end_sessions()
            await producer.send_and_wait("orders", b"y")
        users = [seen.user for seen in cluster.authentications if seen.error_code == 0]

    assert users[0] == "alice"
    assert users[-1] == "bob"


async def test_jaas_file_that_is_not_there_is_the_error_of_start(tmp_path: Path) -> None:
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        producer = Producer(config_of(cluster, Secret.from_file(tmp_path / "missing")))
        with pytest.raises(ConfigurationError, match=r"'.*missing' of a Secret cannot be read"):
            await producer.start()


@pytest.mark.parametrize(
    "text", ["x", f"{SCRAM};", f"{SCRAM.replace('scram.Scram', 'plain.Plain')} username=a password=b;"]
)
async def test_jaas_text_that_came_later_and_does_not_fit_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jaas"
    async with FakeCluster(1, security=ClusterSecurity()) as cluster:
        producer = Producer(config_of(cluster, Secret.from_file(path)))
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=r"^sasl_jaas_config"):
            await producer.start()


def test_jaas_text_that_is_there_is_checked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    path.write_text(login("alice-secret", "älice"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="sasl_username must be ASCII"):
        ProducerConfig(
            bootstrap_servers="h:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=Secret.from_file(path),
        )


async def test_proxy_of_a_variable_is_read_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PROXY", raising=False)
    async with (
        FakeCluster(1, topics=TOPICS) as cluster,
        working_proxy(credentials="u:canary-old") as old,
        working_proxy(credentials="u:canary-new") as new,
    ):
        producer = Producer(cluster.bootstrap_servers, proxy_url=Secret.from_env("KAFKA_PROXY"))
        monkeypatch.setenv("KAFKA_PROXY", f"socks5h://u:canary-old@127.0.0.1:{old.port}")
        async with producer:
            await producer.send_and_wait("orders", b"x")
            monkeypatch.setenv("KAFKA_PROXY", f"http://u:canary-new@127.0.0.1:{new.port}")
            old.cut()
            await producer.send_and_wait("orders", b"y")

    assert old.asked
    assert new.asked


async def test_proxy_variable_that_is_not_set_is_the_error_of_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PROXY", raising=False)
    producer = Producer("h:1", proxy_url=Secret.from_env("KAFKA_PROXY"))
    with pytest.raises(ConfigurationError, match="'KAFKA_PROXY' of a Secret is not set"):
        await producer.start()


def test_proxy_variable_that_is_set_is_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PROXY", "canary-proxy")
    with pytest.raises(ConfigurationError, match="proxy_url must be like"):
        Producer("h:1", proxy_url=Secret.from_env("KAFKA_PROXY"))


def test_configuration_is_pickled_by_the_names_of_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PROXY", "http://u:canary-proxy@proxy:1")
    monkeypatch.setenv("KAFKA_LOGIN", login("canary-password"))
    config = ProducerConfig(
        bootstrap_servers="h:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=Secret.from_env("KAFKA_LOGIN"),
        proxy_url=Secret.from_env("KAFKA_PROXY"),
    )
    pickled = pickle.dumps(config)

    assert b"canary" not in pickled
    assert pickle.loads(pickled) == config
