"""Fleets that grow and shrink: docs/how-to/autoscale.md has the rules."""
