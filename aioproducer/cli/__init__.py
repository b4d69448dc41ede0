"""The `aioproducer` command: one module or folder per subcommand, with a function of its name.

Nothing in the library imports from here.
"""
