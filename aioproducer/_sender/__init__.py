"""From the accumulator to the broker and back: drain, send, decide the outcome, complete."""
