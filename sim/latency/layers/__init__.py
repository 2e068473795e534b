"""Whole-step times composed from published tables of layer times (docs/explanation/layers.md)."""
