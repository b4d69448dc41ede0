"""Runs a program to its end and takes what it printed; a cancelled wait kills the program."""

import asyncio
from collections.abc import Sequence

from aioproducer.broker.start_error import BrokerStartError

SAID_MAX_CHARS = 2_000
"""How much of what a failed program printed goes into the error; Maven says why at the start."""


async def run_program(command: Sequence[str]) -> str:
    """Run a program to its end, without input, and return what it printed on both streams.

    Raises:
        BrokerStartError: it ended with an error; the message ends with the start of what it said.
    """
    program = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    text = printed.decode(errors="replace")
    if program.returncode != 0:
        raise BrokerStartError(f"{command[0]} ended with exit code {program.returncode}:\n{text[:SAID_MAX_CHARS]}")
    return text
