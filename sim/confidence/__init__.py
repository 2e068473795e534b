"""How far to believe a simulation: what it rests on, and how far off such runs were."""
