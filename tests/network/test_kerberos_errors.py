"""Texts of Kerberos' codes: each says what to look at, and shows what the library said."""

import pytest

from aioproducer._network.kerberos_errors import TicketAttempt, signed, ticket_error
from aioproducer.errors import TicketError

KRB5 = -1_765_328_384
GSS_OF_KRB5 = 39_756_032
NO_CREDENTIALS, EXPIRED, FAILURE = 7 << 16, 11 << 16, 13 << 16
ATTEMPT = TicketAttempt("alice@R", "kafka/host", "FILE:/c")


def text_of(minor: int, major: int = FAILURE, *words: str) -> str:
    error = ticket_error(major, minor & 0xFFFF_FFFF, ATTEMPT, words=words or ("said",))
    assert isinstance(error, TicketError)
    return str(error)


@pytest.mark.parametrize(
    "code, words",
    [
        (KRB5 + 6, "does not know alice@R: look at sasl_kerberos_principal"),
        (KRB5 + 7, "does not know kafka/host: sasl_kerberos_service_name"),
        (KRB5 + 14, "encryption type"),
        (KRB5 + 18, "alice@R is locked"),
        (KRB5 + 23, "the password of alice@R has expired"),
        (KRB5 + 24, "another key for alice@R"),
        (KRB5 + 31, "another key for alice@R"),
        (KRB5 + 32, "has expired: run kinit"),
        (KRB5 + 33, "clocks"),
        (KRB5 + 37, "clocks of this machine, the KDC and the broker differ by more than five minutes"),
        (KRB5 + 41, "the broker has another key for kafka/host"),
        (KRB5 + 44, "the broker has another key for kafka/host"),
        (KRB5 + 45, "the broker has another key for kafka/host"),
        (KRB5 + 68, "another realm"),
        (KRB5 + 134, "not the name of a principal"),
        (KRB5 + 135, "KRB5_CONFIG"),
        (KRB5 + 136, "KRB5_CONFIG"),
        (KRB5 + 139, "KRB5CCNAME"),
        (KRB5 + 140, "KRB5CCNAME"),
        (KRB5 + 141, "no ticket in the ticket cache FILE:/c: run kinit, or set sasl_kerberos_keytab"),
        (KRB5 + 148, "clocks"),
        (KRB5 + 150, "encryption type"),
        (KRB5 + 154, "default_realm"),
        (KRB5 + 156, "no KDC of the realm answers"),
        (KRB5 + 179, "not a keytab"),
        (KRB5 + 181, "no key for alice@R"),
        (KRB5 + 184, "not a keytab"),
        (KRB5 + 193, "ticket cache cannot be read"),
        (KRB5 + 194, "ticket cache cannot be read"),
        (KRB5 + 195, "run kinit"),
        (KRB5 + 199, "ticket cache cannot be read"),
        (KRB5 + 210, "another key for alice@R"),
        (KRB5 + 212, "ticket cache cannot be read"),
        (KRB5 + 213, "not a keytab"),
        (KRB5 + 217, "realm"),
        (KRB5 + 220, "no KDC of the realm answers"),
        (KRB5 + 224, "default_realm"),
        (KRB5 + 237, "permitted_enctypes"),
        (GSS_OF_KRB5, "another principal than alice@R"),
        (GSS_OF_KRB5 + 1, "no key for alice@R"),
    ],
)
def test_code_has_a_text_that_says_what_to_look_at(code: int, words: str) -> None:
    text = text_of(code)

    assert words in text
    assert text.endswith(" (said)")


def test_unknown_code_shows_what_the_library_says() -> None:
    assert text_of(KRB5 + 60, FAILURE, "generic") == "Kerberos gives no ticket of alice@R for kafka/host: generic"


def test_unknown_code_is_not_taken_for_a_missing_ticket() -> None:
    assert text_of(KRB5 + 60, NO_CREDENTIALS, "generic").endswith("for kafka/host: generic")


def test_unknown_code_without_words_is_shown() -> None:
    assert text_of(5, FAILURE, "Success") == "Kerberos gives no ticket of alice@R for kafka/host: code 5"


@pytest.mark.parametrize(
    "major, words", [(NO_CREDENTIALS, "run kinit"), (EXPIRED, "has expired"), (EXPIRED | 3, "has expired")]
)
def test_major_code_tells_where_the_minor_one_does_not(major: int, words: str) -> None:
    assert words in text_of(100_001, major, "Success")


def test_words_of_a_kdc_are_escaped_and_cut() -> None:
    text = text_of(KRB5 + 60, FAILURE, "\x1b[31m" + "x" * 100_000)

    assert "\x1b" not in text
    assert len(text) < 2_000


def test_minor_codes_are_signed_as_in_kerberos() -> None:
    assert signed(2529638919) == KRB5 + 7
    assert signed(GSS_OF_KRB5) == GSS_OF_KRB5
