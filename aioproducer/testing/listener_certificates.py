"""The files and TLS contexts of an embedded cluster's listeners."""

import ssl
import tempfile
from collections import deque
from pathlib import Path

from aioproducer.testing.certificates import Certificate
from aioproducer.testing.cluster_security import LISTENERS, ClusterSecurity, write_client_files

_REQUIREMENTS = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
BROKER_FILE = "broker.pem"


class ListenerCertificates:
    """Writes what clients need to a temporary folder, and keeps one TLS context per listener."""

    def __init__(self, security: ClusterSecurity) -> None:
        self._security = security
        self._temporary = tempfile.TemporaryDirectory(prefix="aioproducer-fake-")
        self.folder: Path = Path(self._temporary.name)
        self._certificate = security.broker_certificate or security.authority.issue()
        self._trusted = security.authority.certificate
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.names_asked: deque[str | None] = deque(maxlen=1000)
        """The names that clients sent in their first message (SNI), oldest first."""

        write_client_files(security, self.folder)
        self.change()

    def context(self, listener: str) -> ssl.SSLContext | None:
        """Return the context of new connections to a listener; None for one without TLS."""
        return self._contexts.get(listener)

    def change(self, certificate: Certificate | None = None, trusted: str | None = None) -> None:
        """Replace the brokers' certificate, the authorities they trust, or both, for new connections."""
        self._certificate = certificate or self._certificate
        self._trusted = trusted or self._trusted
        path = self.folder / BROKER_FILE
        path.write_text(self._certificate.pem, "utf-8")
        for listener in self._security.listeners:
            if LISTENERS[listener].endswith("SSL"):
                self._contexts[listener] = self._made(path, self._security.client_auth.get(listener, "none"))

    def _made(self, path: Path, client_auth: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[name] for name in self._security.tls_versions]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.load_cert_chain(path)
        context.load_verify_locations(cadata=self._trusted)
        context.verify_mode = _REQUIREMENTS[client_auth]
        context.sni_callback = lambda _tls, name, _context: self.names_asked.append(name)
        return context

    def remove(self) -> None:
        """Remove the folder."""
        self._temporary.cleanup()
