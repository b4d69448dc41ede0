"""One cell: a cluster, its proxies and producer processes, the fault injector over them, and the checker at the end.

FOLDER/  what the checker reads (checker/cell_files.py), verdict.json, what processes printed,
         and, if anything was violated, broker-N.log and the brokers' files of the topics
"""

import asyncio
import contextlib
import dataclasses
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aioproducer.testing.cluster_security import CA_FILE, LOGIN_MODULES, ClusterSecurity, write_client_files
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.server_properties import KEYSTORE_FILE, free_ports, write_broker_files
from tests.kafka_releases import PROPERTIES, RELEASES, version_of_release
from tests.programs.chaos.administration import Administration
from tests.programs.chaos.arena import Arena, now_us, run_to_end
from tests.programs.chaos.checker.cell_files import Cell
from tests.programs.chaos.fault_injector import FaultInjector, watch_leaders
from tests.programs.chaos.plans import CLIENTS_OF_A_PROCESS, Orders, Plan
from tests.programs.chaos.proxy import Link

NODES = 3
RECOVERY_S = 10.0  # bound of the check RECOVERY, on top of the request timeout

WARM_UP_S = 1.5

START_TIMEOUT_S = 60.0
"""Limit for the first acknowledgement of each steady sender: else its absence would be blamed on the first fault."""

END_TIMEOUT_S = 120.0

LATE_APPENDS_S = 3.0  # requests of closed connections may be carried out so long after

SERVER = {"auto.create.topics.enable": "false", "replica.lag.time.max.ms": "10000", **PROPERTIES}


@dataclasses.dataclass(slots=True)
class CellResult:
    plan: Plan
    faults: Counter[str]
    verdict: dict[str, Any]
    problems: list[str]
    """Problems outside of the checker: a process that died or printed, a cluster that did not come back."""
    folder: Path
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.problems and not self.verdict.get("violations")


async def run_cell(plan: Plan, folder: Path) -> CellResult:
    folder.mkdir(parents=True)
    began = time.monotonic()
    result = CellResult(plan, Counter(), {}, [], folder, 0)
    async with open_arena(plan.version, plan.seed, folder, is_secured=plan.is_secured) as arena:
        try:
            await _fight(plan, arena, result)
        except asyncio.CancelledError:
            shutil.rmtree(folder)
            raise
        except Exception as error:  # noqa: BLE001 - reported as the cell's outcome; the next cell still runs
            result.problems.append(f"{type(error).__name__}: {error}")
        if not result.passed:
            _keep_broker_files(arena)
    result.seconds = time.monotonic() - began
    if result.passed:
        shutil.rmtree(folder)
    return result


@contextlib.asynccontextmanager
async def open_arena(
    version: str,
    seed: int,
    folder: Path,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    is_secured: bool = False,
) -> AsyncIterator[Arena]:
    """Brokers, with more settings than all have, and proxies; gone at the end with every process, however it ends."""
    proxy_ports = free_ports(NODES)
    if is_secured:
        settings = {**settings, **broker_settings(folder)}
    cluster = KafkaCluster(
        version_of_release(version),
        nodes=NODES,
        advertised_ports=proxy_ports,
        properties={**SERVER, **settings},
        features=RELEASES[version],
    )
    async with cluster:
        links = {}
        for node, port in zip(cluster.node_ids, proxy_ports, strict=True):
            proxied = cluster.node(node).ports.proxied
            assert proxied is not None
            links[node] = Link(port, proxied.port, f"{seed}/{node}")
            await links[node].open()
        admin = Administration(cluster.bootstrap_servers)
        arena = Arena(folder, cluster, links, admin, random.Random(seed))
        if is_secured:
            await cluster.change_password(USER, PASSWORD)
            arena.client_options = client_options(folder)
        try:
            yield arena
        finally:
            arena.kill_senders()
            for link in links.values():
                await link.close()


async def _fight(plan: Plan, arena: Arena, result: CellResult) -> None:
    (arena.folder / "events.jsonl").touch()
    for workload in plan.workloads:
        await arena.make_topic(workload.number, plan.topic(workload), workload.partitions)
    await arena.wait_until_healed()
    _start_senders(plan, arena)
    await arena.wait_until_acknowledged(now_us(), START_TIMEOUT_S)
    await asyncio.sleep(WARM_UP_S)
    bound_s = plan.limits["request_timeout_ms"] / 1000 + RECOVERY_S
    injector = FaultInjector(arena, plan.faults, longest_stop_s=plan.longest_stop_s, recovery_bound_s=bound_s)
    result.faults = injector.counts
    watching = asyncio.create_task(watch_leaders(arena))
    try:
        await injector.run(time.monotonic() + plan.seconds)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    _describe(plan, arena)
    result.problems += await _end_senders(arena)
    result.problems += files_with_the_password(arena.folder)
    await asyncio.sleep(LATE_APPENDS_S)
    for topic in arena.topics.values():
        await arena.read_log(topic)
    verdict = arena.folder / "verdict.json"
    await run_to_end(
        "tests.programs.chaos.checker", str(arena.folder), out=verdict, log_file=arena.folder / "checker.log"
    )
    result.verdict = json.loads(verdict.read_text("utf-8"))


def _start_senders(plan: Plan, arena: Arena) -> None:
    for workload in plan.workloads:
        orders = Orders(
            name=workload.name,
            workload=workload.kind,
            folder=str(arena.folder),
            bootstrap=arena.bootstrap,
            topic=plan.topic(workload)["name"],
            topic_number=workload.number,
            first_client=workload.number * CLIENTS_OF_A_PROCESS,
            rate=workload.rate,
            seed=f"{plan.seed}/{workload.name}",
            options={**plan.options(workload), **arena.client_options},
            client=plan.client,
        )
        arena.start_sender(orders)


def _describe(plan: Plan, arena: Arena) -> None:
    """Write `cell.json`; sending ends now."""
    cell = Cell(
        seed=plan.seed,
        topics={str(workload.number): plan.topic(workload) for workload in plan.workloads},
        limits=plan.limits,
        lasting_clients=[
            workload.number * CLIENTS_OF_A_PROCESS for workload in plan.workloads if workload.kind == "steady"
        ],
        sending_ended_us=now_us(),
    )
    (arena.folder / "cell.json").write_text(json.dumps(cell, indent=1), "utf-8")
    (arena.folder / "plan.json").write_text(json.dumps(dataclasses.asdict(plan), indent=1), "utf-8")


async def _end_senders(arena: Arena) -> list[str]:
    """Let every process close; what is wrong with how they ended."""
    senders = arena.senders.values()
    in_time = await asyncio.gather(*(sender.process.end(END_TIMEOUT_S) for sender in senders))
    problems = []
    for sender, ended in zip(senders, in_time, strict=True):
        printed = sender.process.log_tail(40)
        if not ended:
            problems.append(f"process {sender.orders.name} did not end in {END_TIMEOUT_S:.0f} s")
        elif not sender.orders.end_file.exists():
            problems.append(f"process {sender.orders.name} died: {printed}")
        elif printed:
            problems.append(f"process {sender.orders.name} printed: {printed}")
    return problems


def _keep_broker_files(arena: Arena) -> None:
    for node in arena.nodes:
        shutil.copy(node.folder / "broker.log", arena.folder / f"broker-{node.ports.node_id}.log")
        for partition in node.log_folder.glob("chaos-*"):
            shutil.copytree(partition, arena.folder / f"broker-{node.ports.node_id}" / partition.name)


# SASL over TLS between producers and brokers: the listener behind the proxies, with sessions that end soon

USER, PASSWORD = "alice", "alice-secret"
MECHANISM: Final = "SCRAM-SHA-512"
SESSION_MS: Final = 10_000
_LISTENER: Final = "listener.name.proxied."


def broker_settings(folder: Path) -> Mapping[str, str]:
    """Write what brokers and clients read, and return the settings of the listener that proxies connect to."""
    security = ClusterSecurity()
    write_broker_files(security, folder)
    write_client_files(security, folder)
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL",
        "ssl.keystore.type": "PEM",
        f"{_LISTENER}ssl.keystore.location": str(folder / KEYSTORE_FILE),
        f"{_LISTENER}sasl.enabled.mechanisms": MECHANISM,
        f"{_LISTENER}{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULES[MECHANISM]} required;",
        f"{_LISTENER}connections.max.reauth.ms": str(SESSION_MS),
    }


def files_with_the_password(folder: Path) -> list[str]:
    """Return what is wrong with the files that processes wrote: each that shows the password of the producers."""
    found = [
        path.name for path in sorted(folder.iterdir()) if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    return [f"{name} shows the password" for name in found]


def client_options(folder: Path) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(folder / CA_FILE),
        "sasl_mechanism": MECHANISM,
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }
