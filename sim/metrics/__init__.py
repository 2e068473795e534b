"""Numbers computed from a run log. `sim.metrics.registry` defines each of them.

Every run prints a summary, so importing what a summary needs loads numpy and nothing slower.
"""
