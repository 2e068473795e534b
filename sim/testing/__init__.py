"""Contract suites for classes of users, and a small simulation of a scenario with them."""
