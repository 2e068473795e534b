"""A page on this computer that simulates a scenario anew whenever one of its settings is moved."""
