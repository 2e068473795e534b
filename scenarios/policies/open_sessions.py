"""Open sessions: KV of a session is kept until no request of it has come for a time.

Rule: a client opens a session for its conversation and gives it a time-out. Between its requests
the session's KV cannot be evicted. The client closes the session after an answer that calls no
tool; otherwise it closes when nothing has happened for `timeout_s`.

Source: SGLang 0.5.23, `--enable-streaming-session`, and `timeout` of `/open_session`
(`SessionController` in session/session_controller.py, `StreamingSession` in
session/streaming_session.py).

What differs: every session is open from its first request on. SGLang looks for time-outs once a
second; a session's KV does not go into the tree of prefixes, so that its last page need not be
whole. Where open sessions hold all memory, SGLang's server waits until one of them closes; here the
one that would be kept longest is let go.
"""

from sim.sglang.policies.policy import CacheBlind


class OpenSessions(CacheBlind):
    """First come, first served; an answer that calls a tool leaves its KV for `timeout_s`."""

    def __init__(self, config, *, timeout_s=60.0):
        super().__init__(config)
        self.timeout_ns = round(timeout_s * 1e9)

    def order(self, waiting, view):
        return list(waiting)

    def keep_ns(self, request, now_ns):
        return self.timeout_ns if request.spec.calls_tool else 0
