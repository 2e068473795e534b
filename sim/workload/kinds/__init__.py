"""Builds the traffic that a scenario asks for, by its kind."""
