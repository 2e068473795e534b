"""The size of a request's KV when it is sent to another server."""

from typing import NamedTuple


class KvBytes(NamedTuple):
    """Bytes that all GPUs of a receiving rank get together.

    Attributes:
        per_token: in layers without a window.
        per_request: states of linear attention, however long the prompt.
        windows: windows in tokens, with the bytes of a token in all layers that have this one. No
            more tokens of the prompt are sent than the window has.
    """

    per_token: int
    per_request: int = 0
    windows: tuple[tuple[int, int], ...] = ()
