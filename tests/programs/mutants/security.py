"""Bugs of TLS, authentication and sessions."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

_D15: Final = ("D15",)
_SASL: Final = "_network/sasl_connection.py"
_OF_SASL: Final = ("tests/network/test_sasl_connection.py",)

SECURITY: Final = (
    Mutant(
        name="request_slips_into_an_exchange",
        breaks="a request is sent between SaslHandshake and the last token",
        families=_D15,
        tests=_OF_SASL,
        changes=(
            Change(
                _SASL,
                "SaslConnection._may_pass",
                "self._phase is not _Phase.SILENT and now < self._expires_at",
                "now < self._expires_at",
            ),
        ),
    ),
    Mutant(
        name="refused_token_loses_what_was_held",
        breaks="a request that waited for an authentication that failed never ends",
        families=_D15,
        tests=_OF_SASL,
        changes=(
            Change(
                _SASL,
                "SaslConnection._ends_of_lost",
                "ends += [(request, unprocessed) for request in self._held]",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="server_proves_nothing",
        breaks="a broker that does not know the password is accepted",
        families=_D15,
        tests=("tests/protocol/sasl/test_scram.py",),
        changes=(
            Change(
                "_protocol/sasl/scram.py",
                "Scram._check_server",
                "hmac.compare_digest(_from_base64(attributes.get('v', ''), 'v'), expected)",
                "expected",
            ),
        ),
    ),
    Mutant(
        name="names_are_not_checked",
        breaks="any certificate of the authority is accepted for any broker",
        families=_D15,
        tests=("tests/journeys/test_tls_start.py",),
        changes=(
            Change(
                "security/_tls_context.py",
                "_without_key",
                "context.check_hostname = rules.checks_name",
                "context.check_hostname = False",
            ),
        ),
    ),
    Mutant(
        name="first_certificates_are_kept",
        breaks="files that have changed are not read",
        families=_D15,
        tests=("tests/network/test_tls_client.py",),
        changes=(
            Change(
                "_network/tls_client.py",
                "TlsClient.prepare",
                "stamp == self._stamp or self._has_just_failed(stamp)",
                "True",
            ),
        ),
    ),
    Mutant(
        name="token_per_connection",
        breaks="each authentication fetches a token",
        families=_D15,
        changes=(
            Change("_network/sasl_client.py", "SaslClient.at_once", "self._tokens.current()", "None"),
            Change("_network/sasl_client.py", "SaslClient.carry_out", "self._tokens.token()", "self._tokens._ask()"),
        ),
    ),
    Mutant(
        name="positions_in_ciphertext",
        breaks="ciphertext that is not sent counts as plaintext, so what was sent counts as not written",
        families=_D15,
        tests=("tests/network/test_tls_transport.py",),
        changes=(
            Change(
                "_network/tls.py",
                "TlsTransport.get_write_buffer_size",
                "self._sealed.unsent(self._raw.get_write_buffer_size())",
                "self._raw.get_write_buffer_size()",
            ),
        ),
    ),
)
