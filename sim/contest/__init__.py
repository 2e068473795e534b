"""Contests: schedulers that get the same traffic, and how surely they differ."""
