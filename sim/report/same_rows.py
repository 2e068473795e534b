"""Says which settings of a sweep have the same results, and why."""

from collections.abc import Sequence

from sim.metrics.summary import Summary
from sim.report.key_text import last_part
from sim.sweep.design import Settings, same
from sim.sweep.results import SweepResults

_MAX_LINES = 5
_ORDER = {"schedule_policy", "scheduling_policy", "policy", "fairness", "t_ms", "kind", "lookahead"}
_ROW_LIMITS = {"max_running_requests", "max_num_seqs"}
_PREFIX_POLICIES = {"fcfs", "lpm", "dfs-weight"}


def same_rows(results: SweepResults) -> list[str]:
    """A sentence for each reason: "Rows 1 and 3 are the same: nobody waited, so ...".

    Rows are those of the sweep's table, numbered from 1. Groups of rows that differ in the same
    keys, for the same reason, share a sentence.
    """
    groups: dict[tuple[tuple[str, ...], str], list[list[int]]] = {}
    # A router chooses among the servers of each pool.
    default = 0 if results.scenario.get("pools") else 1
    servers = {"replicas": results.scenario.get("replicas", default)}
    for rows in _groups(results):
        settings = [servers | dict(results.design.settings[row]) for row in rows]
        keys = tuple(
            key for key in results.design.keys
            if len({same(setting[key]) for setting in settings}) > 1
        )  # fmt: skip
        runs = [run for setting in settings for run in results.summaries(setting)]
        groups.setdefault((keys, _why(keys, settings, runs)), []).append(rows)
    lines = [_sentence(rows, why) for (_, why), rows in groups.items()]
    more = len(lines) - _MAX_LINES
    return lines[:_MAX_LINES] + ([f"{more} more groups of rows are the same."] if more > 0 else [])


def _groups(results: SweepResults) -> list[list[int]]:
    """Rows, from 0, with equal metrics; each group has two or more."""
    found: dict[str, list[int]] = {}
    for row, setting in enumerate(results.design.settings):
        if runs := results.summaries(setting):
            shown = same([[run.get(name) for name in results.setting_metrics] for run in runs])
            found.setdefault(shown, []).append(row)
    return [rows for rows in found.values() if len(rows) > 1]


def _why(keys: Sequence[str], settings: Sequence[Settings], runs: Sequence[Summary]) -> str:
    reasons = {key: _why_key(key, settings, runs) for key in keys}
    known = list(dict.fromkeys(filter(None, reasons.values())))
    if names := [last_part(key) for key, reason in reasons.items() if reason is None]:
        known.append(f"{' and '.join(names)} made no difference to these figures")
    return "; ".join(known)


def _why_key(key: str, settings: Sequence[Settings], runs: Sequence[Summary]) -> str | None:
    name, values = last_part(key), [setting[key] for setting in settings]
    if key.startswith("router"):
        one = all(setting["replicas"] == 1 for setting in settings)
        return "there is one server, so routers cannot differ" if one else None
    if key.startswith("scheduler.") and name in _ORDER:
        if _most(runs, "max_queue_length") == 0:
            return "nobody waited, so policies cannot differ"
        if set(map(str, values)) <= _PREFIX_POLICIES and _most(runs, "cache_hit_rate_pct") == 0:
            return "no prompt begins like another, so all of these policies serve by arrival"
    if name in _ROW_LIMITS:
        most = _most(runs, "max_decode_rows")
        limits = [value for value in values if isinstance(value, int)]
        if most is not None and limits and most < min(limits):
            return f"at most {most:.0f} requests ran at once, fewer than every {name}"
    return None


def _most(runs: Sequence[Summary], metric: str) -> float | None:
    """The largest value of a metric; None if a run does not have it."""
    values = [run[metric] for run in runs if run.get(metric) is not None]
    return max(values) if len(values) == len(runs) else None


def _sentence(groups: Sequence[Sequence[int]], why: str) -> str:
    texts = [_listed([str(row + 1) for row in rows]) for rows in groups]
    if len(texts) == 1:
        return f"Rows {texts[0]} are the same: {why}."
    return f"Rows {'; '.join(texts)} are each the same: {why}."


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
