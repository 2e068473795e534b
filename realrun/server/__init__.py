"""The real server: its loop, what comes to it, and the log of what it did."""
