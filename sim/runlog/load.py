"""From a run log on disk to the columns every report reads."""

from array import array
from typing import Any

import numpy as np

from sim.core.batch import ForwardMode
from sim.runlog.columns import NOT_YET_NS, Int64, RequestColumns, RunLog, StepColumns, TokenGaps
from sim.runlog.json_lines import Line
from sim.runlog.run_log_file import RecordedRun


def load_run_log(recorded: RecordedRun) -> RunLog:
    """The columns of a recorded run."""
    return RunLog(
        requests=_requests(recorded.requests),
        steps=_steps(recorded.steps),
        token_gaps=_token_gaps(recorded.requests),
        meta=recorded.meta,
    )


def _requests(lines: list[Line]) -> RequestColumns:
    def column(key: str) -> Int64:
        return _column([line[key] for line in lines])

    first = [line["token_ns"][0] if line["token_ns"] else None for line in lines]
    return RequestColumns(
        rid=[line["rid"] for line in lines],
        tenant=[line.get("tenant", "") for line in lines],
        status=[line["status"] for line in lines],
        arrival_ns=column("arrival_ns"),
        scheduled_ns=column("scheduled_ns"),
        first_token_ns=_column(first),
        finish_ns=column("finish_ns"),
        prompt_tokens=column("prompt_tokens"),
        cached_tokens=column("cached_at_admit"),
        host_cached_tokens=_column([line.get("host_cached_at_admit", 0) for line in lines]),
        output_tokens=column("output_tokens"),
        priority=_column([line.get("priority", 0) for line in lines]),
        retractions=column("retractions"),
        preemptions=column("preemptions"),
        aged=_column([int(line.get("aged", False)) for line in lines]),
        replica=column("replica"),
    )


def _steps(lines: list[Line]) -> StepColumns:
    def column(key: str) -> Int64:
        return _column([line[key] for line in lines])

    def prefill(part: int) -> Int64:
        return _column([sum(row[part] for row in line["prefill"]) for line in lines])

    return StepColumns(
        replica=column("replica"),
        num_steps=np.ones(len(lines), dtype=np.int64),
        t_start_ns=column("t_start_ns"),
        t_end_ns=column("t_end_ns"),
        mode=_column([ForwardMode[line["mode"].upper()] for line in lines]),
        num_prefill_tokens=prefill(2),
        num_cached_tokens=prefill(1),
        num_loaded_tokens=_column([sum(n for _, n in line.get("loaded", ())) for line in lines]),
        num_prefill_rows=_column([len(line["prefill"]) for line in lines]),
        num_decode_rows=column("n_decode"),
        num_context_tokens=column("ctx"),
        free_tokens=column("free"),
        evictable_tokens=column("evictable"),
        used_tokens=column("used"),
        host_used_tokens=_column([line.get("host_used", 0) for line in lines]),
        used_token_steps=column("used"),
        running=_column([line.get("slots", line.get("running", 0)) for line in lines]),
        queue=column("queue"),
        device_ns=_column([line["t_end_ns"] - line["t_start_ns"] for line in lines]),
        host_ns=column("host_ns"),
    )


def _token_gaps(lines: list[Line]) -> TokenGaps:
    gap_ns = array("q")
    for line in lines:
        gap_ns.extend(np.diff(np.array(line["token_ns"], dtype=np.int64)).tolist())
    gaps = np.array(gap_ns, dtype=np.int64)
    return TokenGaps(gaps, np.ones(len(gaps), dtype=np.int64))


def _column(values: list[Any]) -> Int64:
    """Whole numbers; null is a time that never came."""
    return np.array([NOT_YET_NS if value is None else value for value in values], dtype=np.int64)
