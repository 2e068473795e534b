"""Step times fitted to what a device did: the format of a profile, and the model over it."""
