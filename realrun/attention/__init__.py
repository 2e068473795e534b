"""Paged attention: one seam, and the backends behind it."""
