"""How far to believe a simulation: what its step times rest on, and how far off such runs were.

point.py       a server under a load, as far as errors depend on it
measured.py    measured servers, with how far simulations of them were off
intervals.py   the interval of a mean, from the measured servers that are nearest
confidence.py  all of it for a scenario and its summary
"""
