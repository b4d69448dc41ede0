"""`Kdc`: a Kerberos realm on loopback, by MIT's own programs, for tests and real brokers that ask for tickets.

    with Kdc() as kdc:
        kdc.add("alice")
        cluster = KafkaCluster(security=ClusterSecurity(mechanisms=("GSSAPI",), kdc=kdc))

`environment` is what a process needs to find the realm. The machine's own Kerberos is neither read nor changed, and
everything is gone after `stop`, and after this process, however it ends.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from aioproducer.testing.cluster_security import BROKER_PRINCIPAL
from aioproducer.testing.kafka.prerequisites import kerberos_program, missing_for_kerberos
from aioproducer.testing.kafka.programs import BrokerStartError, MissingToolError, start_tied
from aioproducer.testing.kafka.server_properties import LOOPBACK, free_ports

REALM = "EXAMPLE.TEST"
_START_TIMEOUT_S = 10.0
_POLL_S = 0.02

# Names of loopback are not looked up, and UDP is not used: a test's realm has one port.
_KRB5_CONF = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
[domain_realm]
 localhost = {realm}
 .example.test = {realm}
"""
_KDC_CONF = """\
[kdcdefaults]
 kdc_listen = {host}:{port}
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  max_life = 10h
  max_renewable_life = 7d
  supported_enctypes = aes256-cts:normal
 }}
"""


class Kdc:  # noqa: PLR0904 - the life of the realm, and its principals
    """A realm with its key distribution centre.

    Start it from a thread that lives as long as it should: on Linux it dies with that thread.

    Args:
        realm: the name of the realm, which `localhost` belongs to.
    """

    def __init__(self, realm: str = REALM) -> None:
        self.realm = realm
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the realm, with the brokers' principal `kafka/localhost` in it, and start answering.

        Raises:
            BrokerStartError: it did not start, or was started already.
            MissingToolError: MIT's Kerberos is not on this machine.
        """
        if self._folder is not None:
            raise BrokerStartError("this realm was started already")
        missing = missing_for_kerberos()
        if missing:
            raise MissingToolError(missing)
        self._folder = Path(tempfile.mkdtemp(prefix="aioproducer-kdc-"))
        (self._port,) = free_ports(1)
        atexit.register(self.stop)
        try:
            self._write_configuration()
            self._run("kdb5_util", "create", "-s", "-P", "master", "-r", self.realm)
            self.add(BROKER_PRINCIPAL)
            self.restart()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it and remove the realm; doing so again does nothing."""
        atexit.unregister(self.stop)
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """End the process; the realm stays, for `restart`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Answer again after `kill`, on the same port.

        Raises:
            BrokerStartError: it did not start; with what it printed.
        """
        command = [kerberos_program("krb5kdc"), "-n", "-r", self.realm]
        log_file = self.folder / "kdc.log"
        self._process = start_tied(command, log_file, environment=self._own_environment())
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._responses():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BrokerStartError(f"the KDC did not start:\n{log_file.read_text('utf-8', 'replace')}")
            time.sleep(_POLL_S)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections are accepted, and nothing is answered until `resume`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def folder(self) -> Path:
        """The folder of the realm and its keytabs.

        Raises:
            BrokerStartError: it does not run.
        """
        if self._folder is None:
            raise BrokerStartError("this realm is not running")
        return self._folder

    @property
    def config(self) -> Path:
        """The `krb5.conf` of its clients and brokers."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for processes that use the realm; their default ticket cache is in its folder."""
        return MappingProxyType(
            {
                "KRB5_CONFIG": str(self.config),
                "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
                "KRB5_CLIENT_KTNAME": f"FILE:{self.folder / 'none'}",  # not the machine's own
            }
        )

    def add(self, principal: str, *, max_life: str = "") -> Path:
        """Add a principal with a random key, and return its keytab.

        Args:
            principal: such as `alice` or `kafka/broker-1.example.test`.
            max_life: the longest life of its tickets, such as `5s`; that of the realm if empty.
        """
        life = ["-maxlife", max_life] if max_life else []
        self._run("kadmin.local", "-r", self.realm, "addprinc", *life, "-randkey", principal)
        return self.write_keytab(principal, self.keytab(principal))

    def keytab(self, principal: str) -> Path:
        """The keytab that `add` wrote for a principal."""
        return self.folder / f"{principal.replace('/', '-')}.keytab"

    def write_keytab(self, principal: str, path: Path, *, new_key: bool = False) -> Path:
        """Add the key of a principal to a keytab; with `new_key` change it first, so that older keytabs are void."""
        keep = [] if new_key else ["-norandkey"]
        self._run("kadmin.local", "-r", self.realm, "ktadd", *keep, "-k", str(path), principal)
        return path

    def delete(self, principal: str) -> None:
        """Delete a principal."""
        self._run("kadmin.local", "-r", self.realm, "delprinc", "-force", principal)

    def kinit(self, principal: str, cache: Path, *, life: str = "") -> None:
        """Put a ticket of a principal into a ticket cache, as `kinit` does; `life` is such as `60s`."""
        wanted = ["-l", life] if life else []
        self._run("kinit", *wanted, "-c", f"FILE:{cache}", "-k", "-t", str(self.keytab(principal)), principal)

    def _write_configuration(self) -> None:
        values = {"realm": self.realm, "host": LOOPBACK, "port": self._port, "folder": self.folder}
        self.config.write_text(_KRB5_CONF.format_map(values), "utf-8")
        (self.folder / "kdc.conf").write_text(_KDC_CONF.format_map(values), "utf-8")

    def _own_environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        command = [kerberos_program(program), *arguments]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self._own_environment(), stdin=subprocess.DEVNULL
        )
        if ran.returncode != 0:
            raise BrokerStartError(f"{program} ended with exit code {ran.returncode}:\n{ran.stdout}{ran.stderr}")

    def _responses(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, self._port)) == 0
