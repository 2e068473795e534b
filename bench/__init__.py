"""How fast the simulator is, and how it compares with others: `make bench-scaling bench-peers`."""
