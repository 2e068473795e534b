"""What a serving engine's own text log says: settings, KV pool, and a stream of timed events.

`ServerLog` in `read.py` reads any log; `records.py` has what it gives, in the same words for all
engines. A family's `log.py` knows the lines of its engine. Open one with
`sim.families.open_server_log`.
"""
