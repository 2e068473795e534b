"""Searches the settings of a scenario for the best ones under its SLO."""
