"""Lets good and bad clients use `simulate serve` together for a while."""
