"""Measures one machine in stages, so that several short sessions on a GPU are enough."""

# Exit code of a command that stopped because its time was up, and has more to do.
UNFINISHED = 3
