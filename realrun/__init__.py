"""The real runner: the same scheduler in front of a device. Not built yet."""
