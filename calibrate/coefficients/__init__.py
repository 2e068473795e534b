"""Coefficients of a latency model from clients' time stamps: fitted, judged, or refused."""
