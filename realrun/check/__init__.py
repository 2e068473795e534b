"""Checks that the paged runner computes the same logits as plain transformers."""
