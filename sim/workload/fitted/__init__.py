"""Traffic fitted to a trace: what is kept of it, how it is found, and requests drawn from it."""
