"""Measures one machine in stages, which several short calls can complete."""

# Exit code of a command that stopped because its time was up, and has more to do.
UNFINISHED = 3
