"""Damage by a random number generator: needs nothing but Python, and runs on the builds with sanitizers."""

import faulthandler
import random
import time

from tests.programs.fuzz.decoders import decoders
from tests.programs.fuzz.mutations import check_stream, damaged, random_steps

HANGS_AFTER_S = 30
INPUTS_BETWEEN_LOOKS = 500
STRAY = 0.05  # of the inputs are another decoder's


def run(minutes: float, seed: int) -> None:
    chance = random.Random(seed)
    every = list(decoders().values())
    ends_at = time.monotonic() + 60 * minutes
    inputs = 0
    while time.monotonic() < ends_at:
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        for _ in range(INPUTS_BETWEEN_LOOKS):
            decoder = chance.choice(every)
            whole = chance.choice(every).whole if chance.random() < STRAY else decoder.whole
            decoder.check(damaged(whole, random_steps(chance)))
            inputs += 1
        check_stream(random_steps(chance), [chance.randint(1, 50) for _ in range(5)])
    faulthandler.cancel_dump_traceback_later()
    print(f"{inputs} inputs for {len(every)} decoders: nothing but the errors that are promised")
