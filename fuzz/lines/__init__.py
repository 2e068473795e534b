"""Command lines that nobody means, and disks that are full."""
