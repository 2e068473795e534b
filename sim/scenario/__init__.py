"""Scenario files: strict YAML in, objects out."""
