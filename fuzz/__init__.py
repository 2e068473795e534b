"""Hostile files, servers, clients, command lines and disks: `make fuzz` (docs/how-to/fuzz.md)."""
