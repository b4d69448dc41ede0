"""Positions of TLS records in ciphertext of every shape; `test_tls.py` compares them to what is readable."""

import pytest

from aioproducer._network.sealed_bytes import RECORD_BYTES, SealedBytes


@pytest.mark.parametrize("foreign", [0, 1, 3])
def test_record_of_openssl_in_front_of_plaintext_is_passed(foreign: int) -> None:
    """An answer to KeyUpdate goes out with the next write."""
    other = b"\x17\x03\x03\x00\x16" + bytes(22)
    record = b"\x17\x03\x03\x40\x11" + bytes(RECORD_BYTES + 17)
    last = b"\x17\x03\x03\x00\x1b" + bytes(10 + 17)
    sealed = SealedBytes()
    sealed.add([other * foreign + record[:100], record[100:] + record + last], 2 * RECORD_BYTES + 10)
    assert sealed.unsent(len(last) + 2 * len(record)) == 2 * RECORD_BYTES + 10
    assert sealed.unsent(len(last) + len(record)) == RECORD_BYTES + 10
    assert sealed.unsent(len(last)) == 10
    assert sealed.unsent(1) == 10
    assert sealed.unsent(0) == 0


def test_records_of_another_shape_count_as_gone() -> None:
    sealed = SealedBytes()
    sealed.add([b"\x17\x03\x03\x00\x01z" * 100, b"\x17\x03\x03\xff"], 2 * RECORD_BYTES)
    assert sealed.unsent(50) == 0


def test_chunks_of_one_record_leave_one_after_another() -> None:
    sealed = SealedBytes()
    sealed.add([b"handshake"], 0)
    for _ in range(3):
        sealed.add([b"\x17\x03\x03\x00\x1b" + bytes(27)], 10)
    assert [sealed.unsent(held) for held in (105, 96, 65, 64, 33, 32, 1, 0)] == [30, 30, 30, 20, 20, 10, 10, 0]


def test_ciphertext_without_plaintext_has_no_positions() -> None:
    sealed = SealedBytes()
    sealed.add([b"alert"], 0)
    assert sealed.unsent(5) == 0
