"""Runs the points of sweeps and of searches, and prints what searches found."""
