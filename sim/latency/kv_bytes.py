"""How many bytes the KV of a request has when it is sent to another server.

Each GPU of the receiver gets what it keeps. With latent attention that is all of a token, and with
more GPUs than KV heads it is a head that others have, too: such bytes are sent several times, as
in SGLang 0.5.23 (`_resolve_rank_mapping` of `disaggregation/common/conn.py`, from line 1432) and
vLLM 0.33.0 (`v1/nixl/tp_mapping.py` of `kv_connector`, from line 93).
"""

from sim.core.kv_bytes import KvBytes
from sim.latency.shapes import ModelShape


def kv_bytes(shape: ModelShape, tp: int) -> KvBytes:
    """The bytes of a model's KV on its way to a rank of `tp` GPUs."""
    per_token, windows = 0, dict[int, int]()
    for layer in shape.layers:
        attention = layer.attention
        num_bytes = layer.count * attention.kv_bytes(shape.kv_element_bytes, tp) * tp
        if attention.window is None:
            per_token += num_bytes
        elif num_bytes:
            windows[attention.window] = windows.get(attention.window, 0) + num_bytes
    return KvBytes(per_token, -(-shape.state_bytes // tp) * tp, tuple(sorted(windows.items())))
