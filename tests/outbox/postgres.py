"""A PostgreSQL server of the tests' own, on loopback, in a folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from aioproducer.testing.kafka.server_properties import free_ports

USER = "postgres"
PROGRAMS = ("initdb", "postgres", "pg_isready")


def postgres_binaries() -> Path | None:
    """Return the folder of the newest installed server, None if there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    folders = [*debian, *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    return next((folder for folder in folders if all((folder / name).exists() for name in PROGRAMS)), None)


def missing_for_postgres() -> str:
    """Return why no server can be started here, or an empty text."""
    if postgres_binaries() is None:
        return "no PostgreSQL server is installed (Debian: postgresql)"
    if os.geteuid() == 0 and USER not in {user.pw_name for user in pwd.getpwall()}:
        return f"PostgreSQL does not run as root, and there is no user {USER!r}"
    return ""


class Postgres:
    """A server with trust for everyone on loopback.

    Args:
        durable: whether it syncs the disk; tests need not, since they only kill processes.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._fsync = "on" if durable else "off"
        binaries = postgres_binaries()
        assert binaries is not None
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="outbox-pg-"))
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        self.start()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def dsn(self) -> str:
        return f"{USER}@127.0.0.1:{self.port}/postgres"

    def url(self, driver: str) -> str:
        return f"postgresql+{driver}://{self.dsn}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        subprocess.run(command, user=self._user, cwd=self._folder, check=True, capture_output=True)

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": self.port,
            "fsync": self._fsync,
        }
        settings = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", self._data, *settings],
                user=self._user,
                cwd=self._folder,
                stderr=log,
                start_new_session=True,
            )
        self._until_ready()

    def _until_ready(self) -> None:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            asked = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            if subprocess.run(asked, check=False).returncode == 0:
                return
            if self._process is None or self._process.poll() is not None:
                raise ChildProcessError(f"PostgreSQL ended at its start:\n{self._log.read_text('utf-8')[-2000:]}")
            time.sleep(0.05)
        raise TimeoutError("PostgreSQL does not answer")

    @staticmethod
    def _backends(server: int) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text("ascii").split()]

    @staticmethod
    def _runs(pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state != "Z"  # the server, its parent, is gone: who reaps it may take its time

    def kill(self) -> None:
        """Kill the server at once, with all its backends."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)  # from here on it starts no backend
            backends = self._backends(self._process.pid)
            self._process.kill()
            for backend in backends:  # each is the leader of a process group of its own
                with suppress(ProcessLookupError):
                    os.kill(backend, signal.SIGKILL)
            self._process.wait()
            self._process = None
            while any(self._runs(backend) for backend in backends):
                time.sleep(0.01)  # a server does not start while a backend holds the shared memory
            (Path(self._data) / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the server and delete its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
