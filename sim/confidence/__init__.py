"""How far to believe a simulation: what its step times rest on, and how far off such runs were.

* confidence.py: what a summary rests on, and intervals where servers like it were measured
* from_measured.py: those intervals, and the measured servers that they are from
* intervals.py: nearness, and how wide an interval is
* measured.py: the measured servers, with how far simulations of them were off
* point.py: a server under a load, as far as errors depend on it
"""
