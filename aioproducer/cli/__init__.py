"""The `aioproducer` command: one file a subcommand, each with a function of its own name.

`main` is the entry point and imports a subcommand only when it is asked for, so that each loads what it needs.
Nothing in the library imports from here.
"""
