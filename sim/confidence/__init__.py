"""How far to believe a simulation: what its step times rest on, and how far off such runs were.

* confidence.py: what a summary rests on, and intervals where servers like it were measured
* from_measured.py: those intervals, and the measured servers that they are from
* intervals.py: how near measured servers are, and how wide an interval is
* measured.py: the measured servers, with how far simulations of them were off
* point.py: a server under a load, as far as errors depend on it
* fitted.py: intervals of a server whose step times were fitted to its own requests
* attainment.py: the interval of an SLO attainment
"""
