"""Conformance suites and factories for implementations of the seams."""
