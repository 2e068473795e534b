"""Measures how long single steps of many compositions take."""
