"""The whole, unmodified producer in virtual time: one integer decides everything that happens, and a checker judges it.

`python -m tests.programs.simulation --family D2 --seed 123` replays one run, `--seeds 1000 --all` lives many through;
`coverage run --branch -m tests.programs.simulation --all` shows which lines they reach. Nothing here reads a clock,
opens a socket or draws unseeded randomness.

| word | meaning |
|---|---|
| family | what the plans of one kind are drawn from: D1, "order in one partition", to D20, "hostile brokers" |
| plan | what one family and one seed decide before the run: options, cluster, callers, strikes |
| strike | one fault at one time; `FAULTS` has every kind |
| nemesis | carries out the strikes (Jepsen's word) |
| run | one plan, lived through against the sans-IO brokers of `aioproducer.testing.fake_broker` |
| story | one record or transaction, and what its caller was told of it |
| watch | checks one promise while the run goes on |
| excuse | a reason in the plan for which a record or a transaction may fail |
| check | a promise by its name, LOST or IDLE: `tests/programs/checks.py` |
| stray | a request of one transaction that arrives during a later one |
| scene | two to four records and one fault, of which every order of events is tried |
"""

from tests.programs.simulation.command import main

main()
