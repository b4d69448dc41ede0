"""A MariaDB server of the tests' own, on loopback, in a folder of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql

from aioproducer.testing.kafka.server_properties import free_ports

USER = "mysql"
PROGRAMS = ("mariadbd", "mariadb-install-db")
FOLDERS = os.pathsep.join(["/usr/sbin", "/usr/bin", os.environ.get("PATH", "")])


def missing_for_mariadb() -> str:
    """Return why no server can be started here, or an empty text."""
    if not all(shutil.which(program, path=FOLDERS) for program in PROGRAMS):
        return "no MariaDB server is installed (Debian: mariadb-server)"
    if os.geteuid() == 0 and USER not in {user.pw_name for user in pwd.getpwall()}:
        return f"MariaDB does not run as root, and there is no user {USER!r}"
    return ""


class MariaDb:
    """A server whose root needs no password on loopback; it flushes rarely, since only processes are killed."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="outbox-mariadb-"))
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        install = self._program("mariadb-install-db")
        subprocess.run(
            [install, *self._options, "--auth-root-authentication-method=normal", "--skip-test-db"],
            user=self._user,
            cwd=self._folder,
            check=True,
            capture_output=True,
        )
        self.start()
        with pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True) as connection:
            connection.cursor().execute("CREATE DATABASE service")

    @property
    def _options(self) -> tuple[str, ...]:
        return "--no-defaults", f"--datadir={self._folder / 'data'}"

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=FOLDERS)
        assert found is not None
        return found

    def url(self, driver: str) -> str:
        return f"mysql+{driver}://root@127.0.0.1:{self.port}/service"

    def start(self) -> None:
        settings = {
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self._folder / "socket",
            "pid-file": self._folder / "pid",
            "innodb-flush-log-at-trx-commit": 2,
            "innodb-buffer-pool-size": "32M",
        }
        self._process = subprocess.Popen(
            [self._program("mariadbd"), *self._options, *(f"--{name}={value}" for name, value in settings.items())],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._until_ready()

    def _until_ready(self) -> None:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            try:
                pymysql.connect(host="127.0.0.1", port=self.port, user="root").close()
            except pymysql.err.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError("MariaDB does not answer")

    def kill(self) -> None:
        """Kill the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the server and delete its folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
