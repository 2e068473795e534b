"""From run logs to numbers, tables and pictures. The only user of pandas and matplotlib."""
