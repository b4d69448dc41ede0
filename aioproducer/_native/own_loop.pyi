"""Whether the event loop that runs on this thread is the producer's."""

class OwnLoop:
    """The thread and the event loop that it was made on."""

    def is_on_thread(self) -> bool:
        """Whether the caller runs on that thread."""
    def is_here(self) -> bool:
        """Whether the caller runs on that thread, and on no other event loop there; without any it may."""
