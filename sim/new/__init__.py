"""Start files for classes of one's own: `python -m sim.new router my_router`."""
