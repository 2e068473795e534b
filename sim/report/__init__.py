"""From run logs to tables and pictures."""
