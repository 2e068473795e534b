"""Builds the latency model that a scenario asks for; the kinds that need no tables."""
