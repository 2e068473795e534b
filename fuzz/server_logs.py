"""Logs of servers, good and damaged: lines are cut, joined, doubled, shuffled, values replaced."""

import gzip
import re
from pathlib import Path
from random import Random

from fuzz.mutate import VALUES, WORDS, mutated_bytes

_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_HUGE = 200_000
_SGLANG = """\
[2026-06-11 04:11:07] server_args=ServerArgs(model_path='/models/Qwen3-32B', tp_size=2, dp_size=1, \
pp_size=1, page_size=16, schedule_policy='lpm', chunked_prefill_size=1024, \
max_prefill_tokens=4096, max_running_requests=None, context_length=None, mem_fraction_static=0.86, \
decode_log_interval=2, enable_dp_attention=False, disaggregation_mode='null', \
cuda_graph_bs=[1, 2, 4], lora_paths=None, \
json_model_override_args='{"a": [1, 2]}', device=<Device.CUDA: 1>, speculative_algorithm=None)
[2026-06-11 04:22:35 TP0] Load weight end. elapsed=5.1 s, type=X, mem usage=7.80 GB.
[2026-06-11 04:22:35 TP0] KV Cache is allocated. #tokens: 50000, K size: 1.50 GB, V size: 1.50 GB
[2026-06-11 04:22:40 TP0] Capture cuda graph bs [1, 2, 4, 8]
[2026-06-11 04:22:42 TP0] max_total_num_tokens=50000, chunked_prefill_size=1024, \
max_prefill_tokens=4096, max_running_requests=64, context_len=4096, available_gpu_mem=9.10 GB
[2026-06-11 04:30:00] The server is fired up and ready to roll!
"""
_BATCHES = """\
[2026-06-11 04:38:{s:02} TP0] Prefill batch, #new-seq: 2, #new-token: 700, #cached-token: {s}, \
token usage: 0.05, #running-req: 4, #queue-req: 1, cuda graph: False, \
input throughput (token/s): 35.20
[2026-06-11 04:38:{s:02} TP0] Decode batch, #running-req: 6, #token: 26823, token usage: 0.05, \
accept len: 1.50, cuda graph: True, gen throughput (token/s): 1033.49, #queue-req: 0
[2026-06-11 04:38:{s:02} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, \
#new_tokens_gained: 512
[2026-06-11 04:38:{s:02}] INFO:     127.0.0.1:55 - "POST /generate HTTP/1.1" 200 OK
"""
_VLLM = """\
1795736678706246\t(APIServer pid=1540) INFO 11-26 23:44:38 [api_utils.py:273] non-default args: \
{'model_tag': 'Qwen/Qwen3-8B', 'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, \
'served_model_name': ['x'], 'enable_prefix_caching': False, 'speculative_config': None, \
'compilation_config': {'mode': <CompilationMode.VLLM_COMPILE: 3>, 'sizes': [1, 2]}}
1795736697717927\t(EngineCore pid=1678) INFO 11-26 23:44:57 [core.py:116] Initializing a V1 LLM \
engine (v0.26.0) with config: model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=8192, \
tensor_parallel_size=1, compilation_config={'cudagraph_capture_sizes': [1, 2, 4], 'a': {}}
1795736727677724\t(EngineCore pid=1678) INFO 11-26 23:45:27 [gpu_worker.py:560] Available KV cache \
memory: 56.51 GiB
1795736727678568\t(EngineCore pid=1678) INFO 11-26 23:45:27 [kv_cache_utils.py:2177] GPU KV cache \
size: 462,944 tokens
"""
_STEPS = """\
1795736763{s:06}\t(APIServer pid=1540) INFO 11-26 23:46:03 [loggers.py:182] Engine 000: \
Iteration({s}): 1 context requests, 997 context tokens, 2 generation requests, 2 generation \
tokens, iteration elapsed time: 3.43 ms, GPU KV cache usage: 0.2%
1795736763{s:06}\t(APIServer pid=1540) INFO 11-26 23:46:03 [loggers.py:310] Engine 000: Avg prompt \
throughput: 4240.4 tokens/s, Avg generation throughput: 223.3 tokens/s, Running: 24 reqs, Waiting: \
0 reqs, GPU KV cache usage: 5.1%, Prefix cache hit rate: 0.0%
1795736763{s:06}\t(APIServer pid=1540) INFO 11-26 23:46:03 [metrics.py:120] SpecDecoding metrics: \
Mean acceptance length: 3.49, Accepted: 92 tokens, Drafted: 259 tokens, Per-position acceptance \
rate: 0.757, 0.622, Avg Draft acceptance rate: 35.5%
"""


def write_server_logs(folder: Path) -> None:
    """Write a log of each engine."""
    batches = "".join(_BATCHES.format(s=second) for second in range(10, 20))
    (folder / "sglang-server.log").write_text(_SGLANG + batches, encoding="utf-8")
    steps = "".join(_STEPS.format(s=step) for step in range(8))
    (folder / "vllm-server.log").write_text(_VLLM + steps, encoding="utf-8")


def damaged_log(content: bytes, rng: Random) -> bytes:
    """A log with one to six kinds of damage; sometimes it is packed, too."""
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        content = rng.choice(_DAMAGES)(content, rng)
    return gzip.compress(content) if rng.random() < 0.1 else content


def _lines(content: bytes, rng: Random) -> bytes:
    """Lines in another order, some of them lost or doubled."""
    lines = content.split(b"\n")
    if rng.random() < 0.3:
        rng.shuffle(lines)
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[:at], *rng.choices(lines, k=rng.randrange(4)), *lines[at + 1 :]])


def _cut(content: bytes, rng: Random) -> bytes:
    """The end or the beginning is missing, or the end of a line."""
    at = rng.randrange(len(content) + 1)
    parts = (content[:at], content[at:], content[:at] + content[content.find(b"\n", at) + 1 :])
    return rng.choice(parts)


def _value(content: bytes, rng: Random) -> bytes:
    """A number is another one, or none."""
    numbers = list(_NUMBER.finditer(content))
    if not numbers:
        return content
    found = rng.choice(numbers)
    text = str(rng.choice(VALUES)).encode(errors="replace")
    new = rng.choice((text, b"", b"9" * rng.choice((3, 15, 16, 40)), b"-" + found[0], b"x" * _HUGE))
    return content[: found.start()] + new + content[found.end() :]


def _word(content: bytes, rng: Random) -> bytes:
    """A NUL, a bracket, an escape or other bytes that do not belong there."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(WORDS) + content[at:]


def _nested(content: bytes, rng: Random) -> bytes:
    """Brackets within brackets."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice((b"[", b"{'a': ", b"X(a=", b"(")) * 5_000 + content[at:]


_DAMAGES = (_lines, _cut, _value, _value, _value, _word, _nested, mutated_bytes)
