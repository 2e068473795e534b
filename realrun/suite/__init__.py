"""Measurements of one machine in stages, so that a short visit to a GPU is enough."""

# Exit code of a command that stopped in time and has more to do.
UNFINISHED = 3
