"""Checks of the arguments of a record; called only from native code."""
