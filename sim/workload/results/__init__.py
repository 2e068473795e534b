"""Readers of measured results, one module a format: requests as they were sent and served."""
