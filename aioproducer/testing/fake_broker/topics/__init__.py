"""Topics and their configuration."""
