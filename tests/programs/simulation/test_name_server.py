"""The simulated name server: well, failing, silent."""

import asyncio
import socket

import pytest

from tests.programs.simulation.name_server import BOOTSTRAP_NAME, NameServer


async def test_the_bootstrap_name_has_all_addresses_and_an_address_is_its_own() -> None:
    names = NameServer(lambda: ["10.0.0.1", "10.0.0.2"])

    assert await names.look_up(BOOTSTRAP_NAME) == ["10.0.0.1", "10.0.0.2"]
    assert await names.look_up("10.0.0.7") == ["10.0.0.7"]


async def test_a_failing_one_says_so() -> None:
    names = NameServer(list)
    names.is_failing = True

    with pytest.raises(socket.gaierror):
        await names.look_up("10.0.0.1")


async def test_a_silent_one_answers_when_it_is_well_again() -> None:
    """Also those who have asked before; one who has given up is forgotten."""
    names = NameServer(list)
    names.is_silent = True
    patient, impatient = (asyncio.ensure_future(names.look_up("10.0.0.1")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()

    names.clear_up()

    assert await patient == ["10.0.0.1"]
    assert impatient.cancelled()
