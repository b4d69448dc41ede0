"""The demo: real records through a cluster of three while a broker dies, and everything read back and checked."""
