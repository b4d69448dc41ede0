"""The parts of a `MockProducer` that a `Producer` has for the network."""
