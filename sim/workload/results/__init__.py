"""Readers of measured results, which say how the requests of a run were sent and served."""
