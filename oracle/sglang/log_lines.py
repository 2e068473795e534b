"""Lets SGLang's own code write lines of a server's log, for tests of our reader of them.

`python -m oracle.sglang.log_lines FILE`, with SGLang's interpreter. Every kind of memory, with and
without drafts, in every role; values are chosen, the lines are SGLang's.
"""

import io
import itertools
import logging
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sim.installed.inside.sglang.packages import import_sglang
from sim.installed.inside.sglang.quiet import Quiet

MEMORY: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": {"is_hybrid_swa": True, "swa_num_used": 41, "swa_token_usage": 0.41},
    "states": {"is_hybrid_ssm": True, "mamba_num_used": 5, "mamba_usage": 0.05},
}
ROLES = ("null", "prefill", "decode")


def reporter_of(memory: str, drafts: bool, role: str) -> Any:
    """SGLang's object that writes lines, beside a scheduler of these features."""
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers.scheduler_components import metrics_reporter
    from sglang.srt.managers.scheduler_components.pool_stats_observer import PoolStats

    pool = PoolStats(
        full_num_used=4321, full_token_usage=0.43, full_available_size=5679, full_evictable_size=0,
        **MEMORY[memory],
    )  # fmt: skip
    for name, values in {
        "get_disagg": {
            "language_only": False, "disaggregation_decode_host_receive_threshold": 0.5
        },
        "get_spec": {"speculative_num_draft_tokens": 4, "speculative_num_steps": 3},
        "get_observability": {"decode_log_interval": 1},
    }.items():  # fmt: skip
        setattr(metrics_reporter, name, lambda values=values: SimpleNamespace(**values))
    queue = SimpleNamespace(queue=[1, 2], retracted_queue=[1], num_tokens_pre_allocated=120)
    scheduler = SimpleNamespace(
        pool_stats_observer=SimpleNamespace(get_pool_stats=lambda: pool), forward_ct=7,
        waiting_queue=[1, 2, 3], disaggregation_mode=DisaggregationMode(role), device="cuda",
        disagg_prefill_bootstrap_queue=queue, disagg_prefill_inflight_queue=[1],
        disagg_decode_prealloc_queue=queue, disagg_decode_transfer_queue=queue,
        max_total_num_tokens=10_000, enable_priority_scheduling=False, kv_events_publisher=Quiet(),
        spec_algorithm=SimpleNamespace(is_none=lambda: not drafts, is_dspark=lambda: False),
    )  # fmt: skip
    made = object.__new__(metrics_reporter.SchedulerMetricsReporter)
    tic = time.perf_counter() - 1
    made.__dict__.update(
        scheduler=scheduler, is_stats_logging_rank=True, current_scheduler_metrics_enabled=False,
        last_prefill_stats_tic=tic, last_decode_stats_tic=tic, enable_metrics=False,
        enable_mfu_metrics=False, forward_ct_decode=0, decode_log_interval=1,
        num_generated_tokens=96, spec_num_accept_tokens=30, spec_num_correct_drafts=18,
        spec_num_forward_ct=12, spec_total_num_accept_tokens=0, spec_total_num_forward_ct=0,
        spec_num_block_accept_tokens=0, spec_num_cap_tokens=0, _graph_backend_label="cuda graph",
        stats=Quiet(num_decode_host_receive_queue_reqs=SimpleNamespace(total=2)),
        _update_decode_queue_stats=lambda _: None, metrics_collector=None,
        scheduler_status_logger=None, kv_event_publisher=None, enable_kv_cache_events=False,
    )  # fmt: skip
    return made


def write_batches(made: Any) -> None:
    """One prefill batch and one decode batch."""
    from sglang.srt.managers.scheduler_components.metrics_reporter import PrefillStats

    reqs = [SimpleNamespace(pending_bootstrap=place == 0) for place in range(4)]
    batch = SimpleNamespace(reqs=reqs, forward_iter=9, dp_cooperation_info=None)
    stats = PrefillStats(
        log_input_tokens=700, log_hit_tokens=300, new_token_ratio=0.5,
        num_running_reqs=SimpleNamespace(total=6), num_new_seqs=2, num_pending_tokens=55,
    )  # fmt: skip
    made.report_prefill_stats(batch, stats, can_run_cuda_graph=False)
    made.report_decode_stats(can_run_cuda_graph=True, running_batch=batch)


def main(path: Path) -> None:
    import_sglang()
    from sglang.srt.utils.common import configure_logger

    logging.disable(logging.NOTSET)
    written = io.StringIO()
    for place, (memory, drafts, role) in enumerate(itertools.product(MEMORY, (False, True), ROLES)):
        os.environ["SGLANG_LOG_MS"] = str(place % 2 == 1)
        prefix = ("", " TP0", " DP1 TP3", " PP1 TP0 EP0")[place % 4]
        configure_logger(SimpleNamespace(log_level="info"), prefix=prefix)
        (handler,) = logging.getLogger().handlers
        handler.setStream(written)  # type: ignore[attr-defined]
        write_batches(reporter_of(memory, drafts, role))
    path.write_text(written.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
