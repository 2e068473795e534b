"""A search for the traffic under which a contestant is worst: the trace, and what lets it happen.

Optuna proposes a few streams of requests (`search.py`, `streams.py`). The contestant and the
reference serve them, and the request that suffers most is found: its latency with the one over that
with the other (`duel.py`). Requests that this does not take are left out (`shrink.py`). What was
served before that request, and what these have in common, says which rule let it happen
(`explain.py`).
"""
