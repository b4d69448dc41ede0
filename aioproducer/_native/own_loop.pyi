"""Whether the event loop that runs on this thread is the producer's."""

class OwnLoop:
    """Thread and event loop of its creation."""

    def is_on_thread(self) -> bool:
        """Whether the caller runs on that thread."""
    def is_here(self) -> bool:
        """Whether the caller runs on that thread, on that event loop or none."""
