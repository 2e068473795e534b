"""Replicas while they run: one server, a pipeline or a group of ranks."""
