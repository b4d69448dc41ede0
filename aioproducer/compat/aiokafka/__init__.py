"""The aiokafka stand-in."""
