"""Simulated time: SimPy processes for arrivals and servers. The only user of SimPy."""
