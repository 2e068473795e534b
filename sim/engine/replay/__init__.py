"""Replay: fresh engines decide every step of a decision log again, and must decide the same."""
