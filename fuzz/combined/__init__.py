"""Random scenarios with many features together, and what must hold of each."""
