"""The waiting queue: its order, and what of it is kept from pass to pass."""
