"""The scheduler of an installed engine decides, in a process of the engine's own environment."""
