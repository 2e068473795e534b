"""A batch as attention reads it: positions, slots and pages, on the host and on the device."""
