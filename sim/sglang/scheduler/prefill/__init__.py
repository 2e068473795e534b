"""Prefill passes: when there is one, which requests it admits, and what may hold it back."""
