"""Measuring how long steps of many compositions take, one at a time."""
