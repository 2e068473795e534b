"""Readers of measured results: the requests of a run as they were sent and served."""
