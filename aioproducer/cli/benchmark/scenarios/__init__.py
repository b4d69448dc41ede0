"""What is measured, one file a scenario: which clients do what, and which bars follow from the figures.

Each file has one coroutine function that takes a `Bench` and returns a `ScenarioReport`.
"""
