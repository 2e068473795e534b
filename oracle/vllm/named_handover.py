"""The named cases of servers that only prefill, or only decode."""

from oracle.vllm.load import Load
from oracle.vllm.named_case import BOTH, NEW, OLD, Named

_TIGHT = {"num_gpu_blocks": 15}
_TIGHT_BLOCKS = {"num_gpu_blocks": 41, "block_size": 4, "max_model_len": 160, "max_num_seqs": 16}
_ASYNC = {"async_scheduling": True}
_PREFILL = {"role": "prefill", "kv_load_failure_policy": "fail"}
_DECODE = {"role": "decode", "kv_load_failure_policy": "fail"}
_RECOMPUTE = {"role": "decode", "kv_load_failure_policy": "recompute"}
_BUSY = Load(num_requests=40, longest_prompt=60, longest_output=60, together=0.8)

HANDOVER_CASES = {
    "apart_prefill": Named(
        "Blocks of a computed prompt stay until they are fetched; requests wait for them",
        Load(num_requests=40, longest_prompt=120, sharing=0.6, together=0.6),
        _PREFILL | _TIGHT,
        versions=NEW,
        handover=(0.03, 0.0),
    ),
    "apart_prefill_victims": Named(
        "Prompts outgrow the pool: the token of a victim in flight is dropped, not delivered",
        Load(num_requests=60, longest_prompt=150, together=0.8, gap_s=0.005),
        _PREFILL
        | _TIGHT_BLOCKS
        | _ASYNC
        | {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 24},
        versions=NEW,
        handover=(0.01, 0.0),
    ),
    "apart_prefill_idle": Named(
        "Version 0.19.0, when nothing is left to compute: what it still sees of KV that has left",
        Load(num_requests=40, longest_prompt=120, together=0.3, gap_s=0.02, endless=1.0),
        _PREFILL | _TIGHT | _ASYNC,
        versions=OLD,
        handover=(0.001, 0.0),
    ),
    "apart_decode": Named(
        "Blocks for whole prompts, less what is cached; the last token is computed again",
        Load(num_requests=40, longest_prompt=80, sharing=0.6, quoting=0.3, repeating=0.2),
        _DECODE | {"num_gpu_blocks": 25},
        versions=BOTH,
        handover=(0.02, 0.0),
    ),
    "apart_decode_fences": Named(
        "A victim with a step in flight keeps its blocks: rows behind it rest instead",
        _BUSY,
        _DECODE | _ASYNC | _TIGHT_BLOCKS,
        versions=NEW,
        handover=(0.005, 0.0),
    ),
    "apart_decode_lost": Named(
        "KV that is lost on its way is computed here, by requests that keep their turn",
        Load(num_requests=40, longest_prompt=80, longest_output=30, impatient=0.3, together=0.7),
        _RECOMPUTE | _ASYNC | _TIGHT_BLOCKS | {"long_prefill_token_threshold": 8},
        versions=NEW,
        handover=(0.02, 0.4),
    ),
}
