"""One node of the simulated network: its address, and what is wrong with the ways to it."""


class Node:
    def __init__(self, number: int) -> None:
        self.number = number
        self.host = f"10.0.0.{number}"
        self.latency_s = 0.001
        self.jitter_s = 0.0
        self.clear_up()

    def clear_up(self) -> None:
        self.is_dark = False
        """Nothing arrives in either direction, and no client connects; what was sent waits."""
        self.is_refusing = False
        """Connections are refused."""
        self.is_stalled = False
        """It reads nothing: the producer's transports keep what is written."""
        self.extra_s = 0.0
        """Added to the latency of both ways."""
        self.fragment_times = 0
        """Transfers that still arrive in small pieces."""
        self.cut_times = 0
        """Requests of which only a part will arrive before the connection breaks."""
        self.ghost_times = 0
        """Produce requests of which a second copy will arrive later."""
        self.ghost_delay_s = 0.0
        self.lie_times = 0
        """Answers that will arrive with bytes changed."""
        self.stranger_times = 0
        """Connections on which something that is no broker answers."""
        self.echo_times = 0
        """Answers that will arrive a second time."""
