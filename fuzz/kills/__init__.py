"""Kills commands at random moments, and checks what docs/explanation/promises.md says."""
