"""Reads the sizes of a model from its config.json, by architecture."""
