"""From run logs to tables and pictures. Nothing else in `sim` uses pandas and matplotlib."""
