"""Checks of what callers pass for a record; called from native code only."""
