"""Threads of the operating system, and calls from them into the event loop, each with a limit."""
