"""The producer together with other libraries: each module here is for one of them, and needs it.

Nothing here is imported by the rest of the package but the command line.
"""
