"""The whole producer, unmodified, in virtual time: one integer decides what everybody does, and a checker judges it.

A `Family` says what may happen; `draw_plan` turns it and a seed into a `Plan`; `Run` lives the plan through on a
simulated network against the sans-IO brokers of `aioproducer.testing.fake_broker`; `check_history` compares what
callers were told with the brokers' logs. Nothing here reads a clock, opens a socket or draws unseeded randomness.

`python -m tests.programs.simulation --family D2 --seed 123` replays one run, `--seeds 1000 --all` lives many through,
and with `--coverage` says which lines of the package they have reached.
"""

import sys

_FLAG = "--coverage"


def _run() -> None:
    from tests.programs.simulation.command import main  # noqa: PLC0415  # it imports the package, which may be measured

    main()


if _FLAG in sys.argv:
    sys.argv.remove(_FLAG)
    from tests.programs.simulation.reached import run_measured  # without it `coverage` is not needed

    sys.exit(not run_measured(_run))
_run()
