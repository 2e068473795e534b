"""The scoreboard: simulated against measured servers of NVIDIA's silicon table."""
