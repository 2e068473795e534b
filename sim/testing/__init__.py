"""Contract suites for implementations of the interfaces, and factories for tests."""
