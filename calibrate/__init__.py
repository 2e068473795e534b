"""From logs of real runs to latency profiles, and how far to trust them."""
