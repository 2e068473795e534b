"""Paged attention: the interface of its backends, and the backends."""
