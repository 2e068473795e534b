"""How fast the simulator is, alone and beside others: `make bench-scaling bench-peers`."""
