"""The Producer object: its methods, its start and close, and the wiring of its parts."""
