"""A standalone cluster of Spark on loopback: one master, two workers with a core each, from pip's pyspark."""

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil
import pyspark

from aioproducer.testing.kafka.server_properties import free_ports
from tests.spark.crashes.driver import send, spark_environment, wait_until

WORKERS = ("127.0.0.2", "127.0.0.3")


class StandaloneSpark:
    """Starts the processes in a `with`; ends them after it.

    Args:
        folder: for logs and work.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._seen: dict[int, psutil.Process] = {}
        (self._port,) = free_ports(1)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("Master", "127.0.0.1", "-h", "127.0.0.1", "-p", str(self._port), "--webui-port", "0")
            for host in WORKERS:
                work = str(self._folder / f"work-{host}")
                where = ["-h", host, "--webui-port", "0", "-d", work]
                self._start("Worker", host, *where, "-c", "1", "-m", "2g", self.master)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes()
        for each in self._seen.values():
            if each.is_running():
                send(each.pid, signal.SIGKILL)
        for started in self._started:
            started.wait()

    def executors(self) -> list[psutil.Process]:
        """JVMs of executors that run now."""
        found = []
        for each in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()):
                    found.append(each)
        return found

    def executor_of(self, task: int) -> psutil.Process:
        """Return the executor's JVM above a Python worker."""
        [found] = [each for each in psutil.Process(task).parents() if each in self.executors()]
        return found

    def kill(self, executor: psutil.Process) -> None:
        """SIGKILL an executor and its Python workers: what a lost machine looks like."""
        for each in [executor, *executor.children(recursive=True)]:
            send(each.pid, signal.SIGKILL)

    def _start(self, program: str, host: str, *arguments: str) -> None:
        log = self._folder / f"{program}-{host}.log"
        home = Path(pyspark.__file__).parent
        environment = {
            **spark_environment(),
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / f"local-{host}"),
        }
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{program.lower()}.{program}",
            *arguments,
        ]
        with log.open("w") as output:
            self._started.append(
                subprocess.Popen(command, cwd=self._folder, env=environment, stdout=output, stderr=output)
            )
        ready = "I have been elected leader" if program == "Master" else "Successfully registered with master"
        wait_until(
            lambda: ready in log.read_text("utf-8", "replace"), lambda: log.read_text("utf-8", "replace")[-3000:]
        )

    def _processes(self) -> list[psutil.Process]:
        for started in self._started:
            with contextlib.suppress(psutil.NoSuchProcess):
                top = psutil.Process(started.pid)
                self._seen |= {each.pid: each for each in [top, *top.children(recursive=True)]}
        return [each for each in self._seen.values() if each.is_running()]
