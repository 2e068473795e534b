"""Feeds damaged and hostile files to the commands: `make fuzz` (docs/how-to/fuzz.md)."""
