"""How much of a workload caches of every size find: block names, stack distances, hit curves."""
