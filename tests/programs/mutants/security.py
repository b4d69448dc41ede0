"""Bugs of TLS, authentication and sessions."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

_D15: Final = ("D15",)
_CONNECTION: Final = "_network/sasl_connection.py"
_OF_CONNECTION: Final = ("tests/network/test_sasl_connection.py",)

SECURITY: Final = (
    Mutant(
        name="question_slips_into_an_exchange",
        breaks="a request is sent between SaslHandshake and the last token",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION,
                "SaslConnection._may_pass",
                "self._phase is not _Phase.SILENT and now < self._expires_at",
                "now < self._expires_at",
            ),
        ),
    ),
    Mutant(
        name="refused_token_leaves_doubt",
        breaks="what was behind a refused token counts as perhaps written, and is not sent again without need",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION, "SaslConnection._advance", "self._refused_at = self._token_end", "self._refused_at = None"
            ),
        ),
    ),
    Mutant(
        name="refused_token_loses_what_was_held",
        breaks="a request that waited for an authentication that failed never ends",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION,
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
        name="foreign_nonce_is_signed",
        breaks="an answer to another client's message is taken for one to ours",
        families=_D15,
        tests=("tests/protocol/sasl/test_scram.py",),
        changes=(Change("_protocol/sasl/scram.py", "_first", "nonce.startswith(own_nonce)", "nonce"),),
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
                "self._context is not None and (stamp == self._stamp or self._has_just_failed(stamp))",
                "self._context is not None",
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
        name="expired_token_is_sent",
        breaks="a token is used after its end",
        families=_D15,
        tests=("tests/network/test_token_cache.py",),
        changes=(
            Change(
                "_network/token_cache.py",
                "TokenCache.current",
                "self._kept is None or self._wall_clock() >= self._kept.expires_at",
                "self._kept is None",
            ),
        ),
    ),
    Mutant(
        name="positions_in_ciphertext",
        breaks="ciphertext that is not sent counts as plaintext",
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
    Mutant(
        name="ciphertext_has_always_left",
        breaks="what is encrypted counts as sent",
        tests=("tests/network/test_tls_transport.py",),
        changes=(
            Change(
                "_network/tls.py",
                "TlsTransport.get_write_buffer_size",
                "self._waiting_bytes + self._sealed.unsent(self._raw.get_write_buffer_size())",
                "self._waiting_bytes",
            ),
        ),
    ),
    Mutant(
        name="never_authenticates_again",
        breaks="sessions end under requests",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION,
                "SaslConnection._open_session",
                "self._look_at = min(max(due_at, self._not_before), self._expires_at)",
                "self._look_at = math.inf",
            ),
        ),
    ),
    Mutant(
        name="authenticates_again_at_once",
        breaks="a session is renewed within a second of the one before",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION,
                "SaslConnection._end_exchange",
                "self._not_before = now + SHORTEST_INTERVAL_S",
                "self._not_before = now",
            ),
        ),
    ),
    Mutant(
        name="impatience_is_not_remembered",
        breaks="a proxy that closes on what follows a token is asked to take it again and again",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(Change("_network/sasl_client.py", "SaslClient.be_patient", "self._patient.add(place)", "pass"),),
    ),
    Mutant(
        name="unanswered_request_follows_a_token",
        breaks="acks=0: what a refusal leaves unprocessed counts as written",
        families=_D15,
        tests=_OF_CONNECTION,
        changes=(
            Change(
                _CONNECTION,
                "SaslConnection._may_pass",
                "request.expects_response and not self._is_patient",
                "not self._is_patient",
            ),
        ),
    ),
)
