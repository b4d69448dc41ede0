"""What `aioproducer broker --secure` gives to clients: a client.properties, and the certificates that it names."""

import shutil
from pathlib import Path
from typing import Protocol

from aioproducer.testing.cluster_security import CA_FILE, CLIENT_FILE, LISTENERS

LISTENER, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"
PROPERTIES_FILE = "client.properties"
OWNER_ONLY = 0o600


class SecuredCluster(Protocol):
    """The methods that both kinds of cluster have."""

    @property
    def security_folder(self) -> Path:
        """Where its certificates are."""

    def client_properties(self, listener: str, mechanism: str = "") -> dict[str, str]:
        """Return a Java client's properties for one listener."""


def write_client_properties(cluster: SecuredCluster, folder: Path) -> str:
    """Write the files to a folder, and return what to print."""
    for name in (CA_FILE, CLIENT_FILE):
        if folder != cluster.security_folder:
            shutil.copyfile(cluster.security_folder / name, folder / name)
    properties = cluster.client_properties(LISTENER, MECHANISM)
    properties["ssl.truststore.location"] = str((folder / CA_FILE).resolve())
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    path = folder / PROPERTIES_FILE
    path.touch(OWNER_ONLY)
    path.write_text(text, "utf-8")
    others = "".join(
        f"  {name:15} {cluster.client_properties(name, MECHANISM)['bootstrap.servers']}\n" for name in LISTENERS
    )
    return (
        f"{path}:\n{text}\nother listeners (certificate of a client: {folder / CLIENT_FILE}):\n{others}"
        f"users: alice/alice-secret, bob/bob-secret, with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512\n"
    )
