"""KV of models whose layers keep different things: a block table for each group of layers."""
