"""Traffic: synthetic, sessions, recorded traces."""
