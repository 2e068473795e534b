"""The `scheduler` section of a scenario with `family: sglang`."""
