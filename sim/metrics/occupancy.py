"""How full servers are: requests a step decodes, and the share of the KV pool in use."""

from typing import Any

from sim.metrics.rates import ratio
from sim.runlog import StepColumns


def occupancy_metrics(steps: StepColumns) -> dict[str, Any]:
    """`mean_decode_rows`, `max_decode_rows`, `mean_kv_used_pct`; None where there is no such step.

    Means are over steps, not over time.
    """
    decodes = steps.num_decode_rows > 0
    rows, num_steps = steps.num_decode_rows[decodes], steps.num_steps[decodes]
    pool = steps.free_tokens + steps.evictable_tokens + steps.used_tokens
    num_used, num_all = int(steps.used_token_steps.sum()), int((pool * steps.num_steps).sum())
    return {
        "mean_decode_rows": ratio(int((rows * num_steps).sum()), int(num_steps.sum())),
        "max_decode_rows": int(rows.max()) if len(rows) else None,
        "mean_kv_used_pct": ratio(100 * num_used, num_all),
    }
