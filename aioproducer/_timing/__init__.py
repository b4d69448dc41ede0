"""Timers and backoff."""
