"""Files that `aioproducer broker --secure` gives to clients: client.properties, and the certificates it names."""

import errno
import os
from pathlib import Path
from typing import Protocol

from aioproducer.testing.cluster_security import CA_FILE, CLIENT_FILE, LISTENERS

LISTENER, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"
PROPERTIES_FILE = "client.properties"
OWNER_ONLY = 0o600
WRITTEN_HERE = "# written by aioproducer broker --secure\n"


class SecuredCluster(Protocol):
    """The methods that both kinds of cluster have."""

    @property
    def security_folder(self) -> Path:
        """The folder of its certificates."""

    def client_properties(self, listener: str, mechanism: str = "") -> dict[str, str]:
        """Return a Java client's properties for one listener."""


def check_folder(folder: Path) -> None:
    """Refuse a folder whose files would be overwritten, unless they are of an earlier broker.

    Raises:
        FileExistsError: names the file.
    """
    properties = folder / PROPERTIES_FILE
    if properties.exists() and properties.read_text("utf-8", errors="replace").startswith(WRITTEN_HERE):
        return
    for name in (PROPERTIES_FILE, CA_FILE, CLIENT_FILE):
        if (folder / name).exists():
            raise FileExistsError(
                errno.EEXIST, f"{name} is there already, and was not written by aioproducer broker --secure"
            )


def write_client_properties(cluster: SecuredCluster, folder: Path) -> str:
    """Write the files to a folder, and return what to print."""
    for name in (CA_FILE, CLIENT_FILE):
        if folder != cluster.security_folder:
            _write(folder / name, (cluster.security_folder / name).read_text("utf-8"))
    properties = cluster.client_properties(LISTENER, MECHANISM)
    properties["ssl.truststore.location"] = str((folder / CA_FILE).resolve())
    text = WRITTEN_HERE + "".join(f"{name}={value}\n" for name, value in properties.items())
    path = folder / PROPERTIES_FILE
    _write(path, text)
    others = "".join(
        f"  {name:15} {cluster.client_properties(name, MECHANISM)['bootstrap.servers']}\n" for name in LISTENERS
    )
    return (
        f"{path}:\n{text}\nother listeners (certificate of a client: {folder / CLIENT_FILE}):\n{others}"
        f"users: alice/alice-secret, bob/bob-secret, with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512\n"
    )


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read: there are passwords and keys in it."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
        os.fchmod(file.fileno(), OWNER_ONLY)  # one that was there keeps its mode otherwise
        file.write(text)
