"""Python classes of the user that a scenario names: found, loaded, made, and guarded."""
