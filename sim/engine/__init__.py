"""The engine core that every scheduler family shares: requests, steps, executors and replay."""
