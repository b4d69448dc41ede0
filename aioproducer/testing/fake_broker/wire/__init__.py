"""Requests and responses as bytes."""
