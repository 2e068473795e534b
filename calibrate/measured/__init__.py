"""Scenarios against runs that were measured by time stamps alone: no log of steps exists."""
