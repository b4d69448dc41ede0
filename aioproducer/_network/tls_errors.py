"""Errors of TLS, whose texts come from the phase, the verification code, the alert and OpenSSL's reason."""

from __future__ import annotations

import enum
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from aioproducer.errors import TlsClosedError, TlsError, TlsRefusedError, TlsVerificationError


class Phase(enum.Enum):
    """When TLS failed."""

    HANDSHAKE = "in the TLS handshake"
    FIRST_READ = "in answer to our side of the TLS handshake"  # with TLS 1.3 our certificate is refused here
    OPEN = "on the open TLS connection"


@dataclass(frozen=True, slots=True)
class TlsAttempt:
    """Facts about one attempt to connect, for the texts."""

    host: str  # the name that is checked
    has_certificate: bool  # ours
    has_truststore: bool
    names: tuple[str, ...] = ()  # of the broker's certificate, if known
    unnamed: Callable[[], ssl.SSLContext] | None = None  # makes a context that checks all but names, without our key


class Trouble(NamedTuple):
    """A row of the tables below, from which the page "When it does not connect" is made, too."""

    means: str
    remedy: str

    @property
    def text(self) -> str:
        return f"{self.means}: {self.remedy}"


def untrusted(attempt: TlsAttempt) -> str:
    """Return what to do about a certificate that does not lead to a trusted one."""
    if attempt.has_truststore:
        return "ssl_truststore_location is not that of the CA which signed it: ask who runs the cluster for its CA"
    return "give the CA of the cluster as ssl_truststore_location; without one, the system's CAs are trusted"


def _other_name(attempt: TlsAttempt) -> str:
    names = f"; it is for {', '.join(attempt.names)}" if attempt.names else ""
    return (
        f"the broker's certificate is not for {attempt.host!r}{names}. Use one of its names in bootstrap_servers, or, "
        "where the cluster advertises another one, fix advertised.listeners or the certificate"
    )


_NO_ISSUER: Final = Trouble(
    "the issuer of the broker's certificate is not known", "the broker does not send an intermediate certificate, or "
)
_NEW_ONE: Final = "the cluster needs a new one"
_SMALL_KEY: Final = Trouble("the key of the broker's certificate is too small", _NEW_ONE)
_SMALL_KEY_OF_CA: Final = Trouble("the key of the broker's CA is too small", _NEW_ONE)
_WEAK_DIGEST: Final = Trouble(
    "the broker's certificate, or that of its CA, is signed with a digest that is too weak, such as SHA-1 or MD5",
    _NEW_ONE,
)
VERIFICATIONS: Final = {
    9: Trouble(
        "the broker's certificate is not valid yet", "look at its notBefore date, and at the clocks of both machines"
    ),
    10: Trouble("the broker's certificate, or that of its CA, has expired", "the cluster needs a new one"),
    18: Trouble("the broker's certificate is self-signed and not trusted", ""),
    19: Trouble("the broker's certificate is signed by a private CA that is not trusted", ""),
    20: _NO_ISSUER,
    21: _NO_ISSUER,
    26: Trouble(
        "the broker's certificate is not for servers (extended key usage)", "the cluster needs one with serverAuth"
    ),
    66: _SMALL_KEY,
    67: _SMALL_KEY_OF_CA,
    68: _WEAK_DIGEST,
    79: Trouble("the broker's certificate is signed by one that is not of a CA (basicConstraints)", _NEW_ONE),
}
"""By OpenSSL's verification code."""
ABOUT_TRUST: Final = frozenset({18, 19, 20, 21})
"""Codes whose remedy goes on with `untrusted`."""
_NAME_CODES: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

CERTIFICATE_ALERTS: Final = (
    "ACCESS_DENIED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "NO_CERTIFICATE",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
)
"""Alerts with which the other end refuses our certificate, or that there is none."""

ALERTS: Final = {
    "HANDSHAKE_FAILURE": Trouble(
        "the two sides have no cipher in common, or the broker wants a client certificate",
        "see ssl_cipher_suites and ssl_keystore_location",
    ),
    "INSUFFICIENT_SECURITY": Trouble("the broker wants stronger ciphers", "see ssl_cipher_suites"),
    "PROTOCOL_VERSION": Trouble(
        "the two sides have no TLS version in common",
        "see ssl_enabled_protocols; below TLSv1.2 nothing is spoken here",
    ),
    "UNRECOGNIZED_NAME": Trouble(
        "the broker, or a load balancer before it, does not know this name",
        "use the name for which it is configured in bootstrap_servers, or advertised.listeners",
    ),
    "ILLEGAL_PARAMETER": Trouble(
        "the other end does not accept this host name, or another part of the handshake", "its log says more"
    ),
    "INTERNAL_ERROR": Trouble("the other end has a defect, or no certificate for this name", "see its log"),
    "DECRYPT_ERROR": Trouble("the other end could not verify our signature", "are the keys of both sides intact?"),
}
"""By the alert of the other end."""

AFTER_THE_HANDSHAKE: Final = frozenset({"HANDSHAKE_FAILURE", "NO_RENEGOTIATION"})
"""Alerts that have another meaning once the handshake is over: both sides have agreed on a cipher by then."""
ENDED: Final = Trouble(
    "it asks for a second handshake (renegotiation), which is not done here, or wants another certificate",
    "let it ask for a client certificate in the first handshake, or speak TLSv1.3; see its log",
)

_NO_VERSION: Final = Trouble(
    "the broker speaks no TLS version from 1.2 on that ssl_enabled_protocols allows",
    "allow one that it speaks, or let it speak TLSv1.2 or newer",
)
_NO_TLS: Final = Trouble(
    "the other end does not speak TLS",
    "is this the port of a listener without TLS (security_protocol='PLAINTEXT' or 'SASL_PLAINTEXT'), or of another "
    "service?",
)
REASONS: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "UNKNOWN_PROTOCOL": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": Trouble(
        "ssl_enabled_protocols and ssl_protocol leave no TLS version that this OpenSSL speaks", "allow another one"
    ),
    "DH_KEY_TOO_SMALL": Trouble("the broker's Diffie-Hellman key is too small", "it needs stronger settings"),
    "EE_KEY_TOO_SMALL": _SMALL_KEY,
    "CA_KEY_TOO_SMALL": _SMALL_KEY_OF_CA,
    "CA_MD_TOO_WEAK": _WEAK_DIGEST,
}
"""By OpenSSL's reason."""
_ALERT: Final = re.compile(r"(?:SSLV3_|TLSV1_|TLSV13_)(?:ALERT_)?(.+)")


def tls_error(error: Exception, phase: Phase, attempt: TlsAttempt) -> TlsError:
    """Return the error that says what was found and what to change."""
    found = _found(error, phase, attempt)
    found.__cause__ = error
    return found


def _found(error: Exception, phase: Phase, attempt: TlsAttempt) -> TlsError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsVerificationError(_verification(error, attempt))
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return closed_error(phase, attempt)
    reason = (getattr(error, "reason", None) or "").replace(" ", "_").upper()
    if reason in REASONS:
        kind = TlsRefusedError if phase is Phase.HANDSHAKE else TlsError
        return kind(f"{REASONS[reason].text} ({reason})")
    alert = _ALERT.fullmatch(reason)
    if alert is not None:
        return _refused(alert[1], phase, attempt)
    detail = reason or f"{type(error).__name__}: {error}"
    return TlsError(f"TLS failed {phase.value}: {detail}")


def is_of_name(error: BaseException | None) -> bool:
    """Return whether a certificate was not accepted for its names alone."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _NAME_CODES


def closed_error(phase: Phase, attempt: TlsAttempt) -> TlsError:
    """Return the error of a connection that ended during the handshake, or right after it."""
    if phase is Phase.HANDSHAKE:
        third = "" if attempt.has_certificate else ", or one that wants a client certificate (ssl_keystore_location)"
        return TlsClosedError(
            "the other end closed the connection in the TLS handshake without a word: is this the port of a listener "
            f"without TLS, or a load balancer with no broker behind it{third}?"
        )
    hint = (
        "does it accept our certificate? Its log says more"
        if attempt.has_certificate
        else "does it want a certificate? No ssl_keystore_location is given"
    )
    return TlsClosedError(f"the other end closed the connection right after the TLS handshake: {hint}")


def _verification(error: ssl.SSLCertVerificationError, attempt: TlsAttempt) -> str:
    code = error.verify_code
    if is_of_name(error):
        return _other_name(attempt)
    trouble = VERIFICATIONS.get(code)
    if trouble is None:
        return f"the broker's certificate is not accepted: {error.verify_message} (OpenSSL's code {code})"
    return trouble.text + untrusted(attempt) if code in ABOUT_TRUST else trouble.text


def _refused(alert: str, phase: Phase, attempt: TlsAttempt) -> TlsError:
    words = alert.lower().replace("_", " ")
    if alert in AFTER_THE_HANDSHAKE and phase is not Phase.HANDSHAKE:
        return TlsRefusedError(f"the other end answered {words!r} {phase.value}: {ENDED.text}")
    if alert in CERTIFICATE_ALERTS:
        return TlsRefusedError(f"the broker answered {words!r}: {about_certificate(alert, attempt).text}")
    trouble = ALERTS.get(alert)
    if trouble is None:
        return TlsError(f"the other end answered {words!r} {phase.value}: its log says more")
    return TlsRefusedError(f"the other end answered {words!r}: {trouble.text}")


def about_certificate(alert: str, attempt: TlsAttempt) -> Trouble:
    """Return what a refused client certificate means."""
    if not attempt.has_certificate:
        return Trouble(
            "it wants a client certificate",
            "give ssl_keystore_location (or ssl_keystore_key and ..._certificate_chain)",
        )
    if alert == "CERTIFICATE_EXPIRED":
        return Trouble("our certificate has expired", "ssl_keystore_location needs a new one")
    return Trouble(
        "it does not accept our certificate",
        "is the certificate of ssl_keystore_location still valid, meant for clients, and signed by a CA of the "
        "broker's ssl.truststore.location? The broker's log says more",
    )
