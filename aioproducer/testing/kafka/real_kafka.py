"""`KafkaCluster`: real Apache Kafka on loopback, one or more nodes, for demos, benchmarks and tests.

    async with KafkaCluster("4.4.0", nodes=3) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"...")
            await cluster.kill(2)

Each node is broker and controller in one process (KRaft). Jars, a formatted log folder and an archive of loaded
classes are cached per user, so a start takes as long as the JVM needs. Everything it makes is gone after `stop`, and
after this process, however it ends.
"""

import asyncio
import atexit
import fcntl
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from aioproducer._shown_values import in_any_state
from aioproducer.testing.certificates import Certificate
from aioproducer.testing.cluster_security import (
    LISTENERS,
    ClusterSecurity,
    client_options,
    client_properties,
    write_client_files,
)
from aioproducer.testing.fake_broker.settings import checked_racks
from aioproducer.testing.kafka.broker_requests import (
    SCRAM_HASHES,
    delete_scram_user,
    set_broker_configs,
    set_scram_password,
)
from aioproducer.testing.kafka.cache import (
    TESTED_VERSIONS,
    class_archive_options,
    copy_log_folder,
    formatted_log_folder,
    kafka_jars,
    new_uuid,
)
from aioproducer.testing.kafka.kafka_node import KafkaNode, NodeProgram
from aioproducer.testing.kafka.programs import PERFORMANCE_HEAP, SMALL_HEAP, BrokerStartError
from aioproducer.testing.kafka.server_properties import (
    KEYSTORE_FILE,
    LOOPBACK,
    TRUSTSTORE_FILE,
    NodePorts,
    ProxiedPorts,
    free_ports,
    is_free,
    jvm_options,
    properties_text,
    replace_file,
    secured_properties,
    server_properties,
    write_broker_files,
)

START_TIMEOUT_S = 90.0
"""How long a cluster may take to get ready; four to seven seconds are usual."""


class KafkaCluster:  # noqa: PLR0904 - the life of its brokers, and their security
    """A cluster of real brokers; not bound to an event loop, so one cluster serves tests that each have their own.

    Start it from a thread that lives as long as it should: on Linux its brokers die with that thread.
    """

    def __init__(  # noqa: PLR0913 - what may differ between clusters, all by name
        self,
        version: str = TESTED_VERSIONS[0],
        *,
        nodes: int = 1,
        ports: Sequence[int] | None = None,
        advertised_ports: Sequence[int] | None = None,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        security: ClusterSecurity | None = None,
        plugins: Path | None = None,
        racks: Mapping[int, str] | None = None,
        performance: bool = False,
    ) -> None:
        """Describe a cluster; `start` makes it.

        Args:
            version: an Apache Kafka release; 3.9.1 and 4.4.0 are tested.
            nodes: how many brokers, numbered from 1. With three, topics have three replicas and need two in sync.
            ports: the client port of each node; free ones are found where this is `None`.
            advertised_ports: the port of a proxy in front of each node. Each node then has a second listener
                (`node(1).ports.proxied`) for that proxy, and its clients are given these ports.
            properties: broker settings by Kafka's names, for all nodes, over the small and fast ones of this package.
            features: levels to format with by Kafka's names, `{"transaction.version": 0}` for a 4.x without KIP-890.
            security: secured listeners beside the plaintext one, by the names of `LISTENERS` in
                `aioproducer.testing.cluster_security`.
            plugins: a jar, or a folder of classes, that settings of the brokers name, such as `metric.reporters`.
            racks: `broker.rack` by node id.
            performance: the heap and collector of a production broker instead of those of a test.

        Raises:
            TypeError: racks that are not a mapping of node ids to names.
            ValueError: no nodes, not one port for each, or a rack of a node that there is not.
        """
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, not {nodes}")
        if ports is not None and len(set(ports)) != nodes:
            raise ValueError(f"{nodes} nodes need {nodes} different ports, not {list(ports)}")
        if advertised_ports is not None and len(set(advertised_ports)) != nodes:
            raise ValueError(f"{nodes} nodes need {nodes} different advertised ports, not {list(advertised_ports)}")
        self.version = version
        self._node_count = nodes
        self._client_ports = ports
        self._advertised_ports = advertised_ports
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self.security = security
        self._plugins = plugins
        self._racks = checked_racks(racks or {}, nodes)
        self._is_for_measuring = performance
        self._nodes: dict[int, KafkaNode] = {}
        self._folder: WorkingFolder | None = None

    @in_any_state
    def __repr__(self) -> str:
        return f"<KafkaCluster {self.version} {list(self._nodes.values()) or 'not started'}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every node, separated by commas."""
        return ",".join(node.address for node in self._nodes.values())

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The numbers of its nodes, running or not."""
        return tuple(self._nodes)

    async def start(self) -> None:
        """Start every node and return once all of them are ready.

        Raises:
            BrokerStartError: a port is taken, Maven failed, or a node died or was not ready within 90 s; with the
                end of its log. Nothing is left running.
            MissingToolError: Java or Maven is not on this machine.
        """
        if self._folder is not None:
            raise BrokerStartError("this cluster was started already")
        self._require_free_ports()
        jars = await kafka_jars(self.version)
        template = await formatted_log_folder(jars, self._features)
        options: Sequence[str] = PERFORMANCE_HEAP
        if not self._is_for_measuring:
            options = (*SMALL_HEAP, *await class_archive_options(jars, template))
        atexit.register(self._stop_now)
        try:
            self._lay_out(template, jars, options)
            for node in self._nodes.values():
                node.launch()
            await self._wait_until_ready(tuple(self._nodes.values()))
            if self.security is not None:
                for user, password in self.security.users.items():
                    await self._set_password(user, password, self.security.scram_iterations)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill every node and remove what they wrote; doing so again does nothing.

        The data is deleted, so there is no controlled shutdown; that is `kill(node, SIGTERM)`.
        """
        self._stop_now()

    async def kill(self, node_id: int, how: signal.Signals = signal.SIGKILL) -> None:
        """End one node and wait for that: SIGKILL is a crash, SIGTERM a controlled shutdown. Its data stays."""
        await self._nodes[node_id].kill(how)

    async def restart(self, node_id: int) -> None:
        """Start an ended node again on its data and port, and return once it is ready.

        Raises:
            BrokerStartError: it died or was not ready within 90 s; with the end of its log.
        """
        self._nodes[node_id].launch()
        await self._wait_until_ready([self._nodes[node_id]])

    def pause(self, node_id: int) -> None:
        """Freeze one node (SIGSTOP): its connections stay open and nothing is answered."""
        self._nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Let a paused node go on (SIGCONT)."""
        self._nodes[node_id].resume()

    def node(self, node_id: int) -> KafkaNode:
        """One node: whether it runs, its process id, its folders and its log."""
        return self._nodes[node_id]

    # Security

    @property
    def security_folder(self) -> Path:
        """The folder of the certificates: `ca.pem` and `client.pem` for clients, and those of the brokers.

        Raises:
            BrokerStartError: the cluster does not run.
        """
        if self._folder is None:
            raise BrokerStartError("this cluster is not running")
        return self._folder.path

    def secured_servers(self, listener: str) -> str:
        """HOST:PORT of every node's listener of this name, separated by commas.

        Raises:
            LookupError: there is no such listener; without `security`, there is none but PLAINTEXT.
        """
        if listener == "PLAINTEXT":
            return self.bootstrap_servers
        return ",".join(f"localhost:{node.ports.secured[listener]}" for node in self._nodes.values())

    def client_options(self, listener: str, mechanism: str = "", *, user: str = "") -> dict[str, object]:
        """Options of a `Producer` for one listener; those of OAUTHBEARER lack the token provider.

        Args:
            listener: PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL, SASL_MTLS or SIGNED.
            mechanism: the SASL mechanism, for the listeners that have one.
            user: one of the users; the first if not given.

        Raises:
            BrokerStartError: the cluster does not run.
            LookupError: there is no such listener.
        """
        servers: dict[str, object] = {"bootstrap_servers": self.secured_servers(listener)}
        security = self.security or ClusterSecurity()
        return servers | client_options(security, self.security_folder, listener, mechanism=mechanism, user=user)

    def client_properties(self, listener: str, mechanism: str = "", *, user: str = "") -> dict[str, str]:
        """`client_options` as a Java client's properties.

        Raises:
            BrokerStartError: the cluster does not run.
            LookupError: there is no such listener.
        """
        return client_properties(self.client_options(listener, mechanism, user=user))

    async def change_password(self, user: str, password: str) -> None:
        """Change a user's SCRAM passwords, or create the user; those of PLAIN are fixed.

        Raises:
            BrokerStartError: the broker refused.
        """
        await self._set_password(user, password, 4096 if self.security is None else self.security.scram_iterations)

    async def _set_password(self, user: str, password: str, iterations: int) -> None:
        port = self._any_running().ports.broker_port
        for mechanism in SCRAM_HASHES:
            await set_scram_password(port, user, password, mechanism=mechanism, iterations=iterations)

    async def delete_user(self, user: str) -> None:
        """Delete a user's SCRAM passwords.

        Raises:
            BrokerStartError: the broker refused.
        """
        port = self._any_running().ports.broker_port
        for mechanism in SCRAM_HASHES:
            await delete_scram_user(port, user, mechanism=mechanism)

    async def change_certificate(self, certificate: Certificate | None = None, *, trusted: str | None = None) -> None:
        """Replace the certificate of the running brokers, whom they trust, or both; open connections stay.

        Args:
            certificate: for all TLS listeners.
            trusted: certificates of authorities, as PEM.

        Raises:
            BrokerStartError: a broker refused; Kafka compares subject and names with those of the old certificate.
        """
        changed = {}
        if certificate is not None:
            replace_file(self.security_folder / KEYSTORE_FILE, certificate.pem)
            changed["keystore"] = self.security_folder / KEYSTORE_FILE
        if trusted is not None:
            replace_file(self.security_folder / TRUSTSTORE_FILE, trusted)
            changed["truststore"] = self.security_folder / TRUSTSTORE_FILE
        for node in self._nodes.values():
            configs = {
                f"listener.name.{listener.lower()}.ssl.{store}.location": str(path)
                for listener in node.ports.secured
                if LISTENERS[listener].endswith("SSL")
                for store, path in changed.items()
            }
            if node.is_running:
                await set_broker_configs(node.ports.broker_port, node.ports.node_id, configs)

    def _any_running(self) -> KafkaNode:
        return next(node for node in self._nodes.values() if node.is_running and not node.is_paused)

    def _require_free_ports(self) -> None:
        """Look before anything is started.

        Raises:
            BrokerStartError: a port that was asked for is taken.
        """
        for port in (*(self._client_ports or ()), *self._promised_to_secured()):
            if not is_free(port):
                raise BrokerStartError(f"port {port} on {LOOPBACK} is in use by another program")

    def _promised_to_secured(self) -> list[int]:
        return [port for ports in (self.security.ports if self.security else {}).values() for port in ports]

    def _lay_out(self, template: Path, jars: Path, options: Sequence[str]) -> None:
        """Make the folder of every node: formatted log folder and settings."""
        self._folder = WorkingFolder()
        if self.security is not None:
            write_broker_files(self.security, self.security_folder)
            write_client_files(self.security, self.security_folder)
            options = (*options, *jvm_options(self.security, self.security_folder))
        program = NodeProgram(jars, options, self._plugins)
        cluster_id = new_uuid()
        quorum = self._ports_of_all()
        for ports in quorum:
            folder = self._folder.path / f"node-{ports.node_id}"
            copy_log_folder(template, folder / "log", cluster_id=cluster_id, node_id=ports.node_id)
            properties = server_properties(ports, quorum, folder / "log")
            if self.security is not None:
                properties |= secured_properties(self.security, ports, self.security_folder)
            properties |= self._properties
            if ports.node_id in self._racks:
                properties["broker.rack"] = self._racks[ports.node_id]
            (folder / "server.properties").write_text(properties_text(properties), "utf-8")
            self._nodes[ports.node_id] = KafkaNode(ports, folder, program)

    def _ports_of_all(self) -> list[NodePorts]:
        """Client and controller port of every node."""
        count = self._node_count
        names = () if self.security is None else self.security.listeners
        promised = {*(self._client_ports or ()), *(self._advertised_ports or ()), *self._promised_to_secured()}
        free = free_ports((3 + len(names)) * count, besides=promised)
        secured = [dict(zip(names, free[3 * count + at * len(names) :], strict=False)) for at in range(count)]
        for listener, ports in (self.security.ports if self.security else {}).items():
            for own, port in zip(secured, ports, strict=True):
                own[listener] = port
        clients = self._client_ports or free[count : 2 * count]
        proxied: list[ProxiedPorts | None] = [None] * count
        if self._advertised_ports is not None:
            proxied = [*map(ProxiedPorts, free[2 * count :], self._advertised_ports)]
        numbers = range(1, count + 1)
        return [*map(NodePorts, numbers, clients, free[:count], proxied, secured)]

    async def _wait_until_ready(self, nodes: Sequence[KafkaNode]) -> None:
        """Return once each of `nodes` is ready and knows of all that run.

        Raises:
            BrokerStartError: one died or was not ready in time; with the end of its log.
        """
        brokers = sum(node.is_running and not node.is_paused for node in self._nodes.values())
        for node in nodes:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await node.wait_until_ready(brokers)
            except TimeoutError as late:
                said = f"{node} was not ready in {START_TIMEOUT_S:.0f} s:\n{node.log_tail()}"
                raise BrokerStartError(said) from late

    def _stop_now(self) -> None:
        """Kill and remove without an event loop; also runs when the interpreter ends."""
        atexit.unregister(self._stop_now)
        for node in self._nodes.values():
            node.kill_now()
        self._nodes.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


PREFIX = "aioproducer-kafka-"
LOCK_FILE = ".owner"


class WorkingFolder:
    """A temporary folder, removed by `remove` or, if this process dies first, by the next one made.

    Its owner holds a lock on a file in it, which the system drops when the owner dies, however it dies.
    """

    def __init__(self) -> None:
        _remove_orphans()
        self.path: Path = Path(tempfile.mkdtemp(prefix=PREFIX))
        being_made = self.path / f"{LOCK_FILE}.new"
        self._lock = being_made.open("w", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        being_made.rename(self.path / LOCK_FILE)  # only a locked one is ever seen under its name

    def remove(self) -> None:
        """Remove it with all that is in it; doing so again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_orphans() -> None:
    """Remove the folders of processes that died; those of other users are left alone."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK_FILE}"):
        try:
            with lock_file.open("r+", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_file.parent, ignore_errors=True)
        except OSError:
            continue  # its owner lives, or it is not ours
