"""Readers of recorded traces, one module for each format."""
