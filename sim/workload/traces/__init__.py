"""Readers of recorded traces."""
