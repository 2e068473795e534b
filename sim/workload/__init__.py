"""Traffic: synthetic requests, sessions, clients, recorded traces, imported results."""
