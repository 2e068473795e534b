"""Runs a scenario as a command does: in this process, in workers, or as a log says."""
