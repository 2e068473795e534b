"""Why a figure drifts: causes that fit what the windows since then say, the likeliest first.

Each cause has a score, in the same spreads as the judges' scores; none of them is proved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from calibrate.watch.judge import Verdict
from sim.server_metrics.window import Window
from sim.tables.table import number

# A gap between two tokens is one of a server that stood still if it is this much longer than the
# mean, and this long.
_LONG_GAPS, _LONG_S = 10.0, 0.25
# So many more of them than usual are no chance.
_MANY_GAPS = 2.0
_PART = 0.3
_STALLED_S = 1.0
_CLEAR = 1.5
_CERTAIN = 100.0
# A mean that is this much higher than usual has changed.
_MORE = 1.15
# Preemptions for each request: one of twenty.
_FEW_PREEMPTED = 0.05


@dataclass(frozen=True, slots=True)
class Signs:
    """What one window has, or several in the mean, besides its verdicts.

    Attributes:
        long_gaps: tokens for which a request waited as long as for many.
        long_s: how long it waited for them, about.
        late_s: how much later all tokens came than the twin's.
        stalled_s: time in which requests ran and no token came.
        prefill_ms, queue_ms: means of the parts of TTFT, as far as the server measures them.
        preempted: preemptions for each request that finished.
    """

    long_gaps: float = 0.0
    long_s: float = 0.0
    late_s: float = 0.0
    stalled_s: float = 0.0
    prefill_ms: float | None = None
    queue_ms: float | None = None
    preempted: float = 0.0

    @classmethod
    def of(cls, window: Window, tpot_ms: float) -> "Signs":
        """Those of a window whose predicted TPOT is `tpot_ms`."""
        gaps = window.histograms["itl_s"]
        finished = max(1.0, window.added.get("requests", 0.0))
        return cls(
            *gaps.above(max(_LONG_S, _LONG_GAPS * tpot_ms / 1e3)),
            max(0.0, gaps.total - gaps.num * tpot_ms / 1e3),
            window.stalled_s,
            window.figures.get("prefill_ms"),
            window.figures.get("queue_ms"),
            window.added.get("preemptions", 0.0) / finished,
        )

    @classmethod
    def mean(cls, signs: Sequence["Signs"]) -> "Signs":
        def of(name: str) -> float | None:
            known = [value for one in signs if (value := getattr(one, name)) is not None]
            return sum(known) / len(known) if known else None

        return cls(
            of("long_gaps") or 0.0,
            of("long_s") or 0.0,
            of("late_s") or 0.0,
            of("stalled_s") or 0.0,
            of("prefill_ms"),
            of("queue_ms"),
            of("preempted") or 0.0,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when a figure drifts.

    Attributes:
        score, ratio: of each figure, means over the last windows.
        ttft_ms: TTFT, measured and predicted.
        signs, usual: of the last windows, and of those before without drift.
        changes: what was different about the server not long ago.
    """

    score: Mapping[str, float]
    ratio: Mapping[str, float]
    ttft_ms: tuple[float, float]
    signs: Signs
    usual: Signs
    changes: Sequence[str]


def evidence_of(
    verdicts: Sequence[Mapping[str, Verdict]],
    signs: Sequence[Signs],
    usual: Signs,
    changes: Sequence[str],
) -> Evidence:
    """The evidence of the last windows, oldest first."""
    found: dict[str, list[Verdict]] = {}
    for window in verdicts:
        for name, verdict in window.items():
            found.setdefault(name, []).append(verdict)
    ttft = found.get("ttft_ms", ())
    return Evidence(
        {name: _mean([one.score for one in each]) for name, each in found.items()},
        {name: _mean(_clear_ratios(each)) for name, each in found.items()},
        (_mean([one.measured for one in ttft]), _mean([one.predicted for one in ttft])),
        Signs.mean(signs),
        usual,
        changes,
    )


def _clear_ratios(verdicts: Sequence[Verdict]) -> list[float]:
    """Of the windows that are clearly off, or of all if none is."""
    clear = [one.ratio for one in verdicts if abs(one.score) >= _CLEAR]
    return clear or [one.ratio for one in verdicts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def likely_causes(evidence: Evidence) -> list[str]:
    """Sentences about the causes that fit, the likeliest first; none may fit."""
    found = [(score, words) for find in _CAUSES if (score := find(evidence)[0]) > 0
             for words in (find(evidence)[1],)]  # fmt: skip
    found.sort(key=lambda pair: -pair[0])
    return [words for _, words in found]


_Found = tuple[float, str]
_NOTHING: _Found = (0.0, "")


def _other_server(evidence: Evidence) -> _Found:
    if not evidence.changes:
        return _NOTHING
    return _CERTAIN, f"another version or other settings: {evidence.changes[-1]}"


def _pool(evidence: Evidence) -> _Found:
    score = evidence.score.get("kv_share_pct", 0.0)
    if score < _CLEAR:
        return _NOTHING
    times = number(evidence.ratio["kv_share_pct"])
    return score, f"smaller KV pool: a request takes {times} times as much of it"


def _stalls(evidence: Evidence) -> _Found:
    slow = max(evidence.score.get("tpot_ms", 0.0), evidence.score.get("ttft_ms", 0.0))
    now, usual = evidence.signs, evidence.usual
    more = now.long_gaps - usual.long_gaps
    # Where all steps are slower, long gaps are only a part of what is late.
    if more >= max(_MANY_GAPS, usual.long_gaps) and now.long_s >= _PART * now.late_s and slow > 0:
        limit = f"{1e3 * _LONG_S:.0f} ms"
        return 2 * slow, f"stalls: {more:.0f} tokens a window came after gaps of over {limit}"
    if now.stalled_s >= 2 * usual.stalled_s + _STALLED_S and slow > 0:
        return 2 * slow, f"stalls: no token for {number(now.stalled_s)} s a window"
    return _NOTHING


def _decode(evidence: Evidence) -> _Found:
    score = evidence.score.get("tpot_ms", 0.0)
    if score < _CLEAR:
        return _NOTHING
    times = number(evidence.ratio["tpot_ms"])
    return score, (
        f"slower steps: TPOT is {times} times what it was at such batches (throttled clocks,"
        " another program on the GPU, other kernels)"
    )


def _prefill(evidence: Evidence) -> _Found:
    score, now, usual = evidence.score.get("ttft_ms", 0.0), evidence.signs, evidence.usual
    if score < _CLEAR or evidence.score.get("waiting", 0.0) >= _CLEAR:
        return _NOTHING
    if now.prefill_ms is None or usual.prefill_ms is None:
        # The server does not say in which part of TTFT the time is.
        only = max(evidence.score.get("tpot_ms", 0.0), 0.0) < score / 2
        return (0.9 * score, "slower prefill, or a slow front end") if only else _NOTHING
    if now.prefill_ms < _MORE * usual.prefill_ms:
        return _NOTHING
    pair = f"{number(usual.prefill_ms)} → {number(now.prefill_ms)} ms"
    return 0.9 * score, f"slower prefill: {pair} from a request's first step to its first token"


def _front_end(evidence: Evidence) -> _Found:
    score, now, usual = evidence.score.get("ttft_ms", 0.0), evidence.signs, evidence.usual
    parts = (now.prefill_ms, usual.prefill_ms, now.queue_ms, usual.queue_ms)
    if score < _CLEAR or None in parts:
        return _NOTHING
    engine_ms = sum(part or 0.0 for part in parts[::2]) - sum(part or 0.0 for part in parts[1::2])
    more_ms = evidence.ttft_ms[0] - evidence.ttft_ms[1]
    if engine_ms > more_ms / 2:
        return _NOTHING
    return score, (
        f"the front end: TTFT is {number(more_ms)} ms longer, of which {number(max(engine_ms, 0))}"
        " ms are in the engine"
    )


def _queue(evidence: Evidence) -> _Found:
    score = evidence.score.get("waiting", 0.0)
    if score < _CLEAR:
        return _NOTHING
    slow = max(evidence.score.get(name, 0.0) for name in ("tpot_ms", "kv_share_pct", "waiting"))
    part = 1.0 if slow <= score else 0.5
    return part * score, "requests wait that should not: other limits on what runs at a time"


def _preempted(evidence: Evidence) -> _Found:
    more = evidence.signs.preempted - evidence.usual.preempted
    slow = max(evidence.score.get(name, 0.0) for name in ("ttft_ms", "tpot_ms", "waiting"))
    if more < _FEW_PREEMPTED or slow < _CLEAR:
        return _NOTHING
    return 0.8 * slow, f"preemptions: {number(more)} more for each request that finishes"


def _faster(evidence: Evidence) -> _Found:
    score = max(-evidence.score.get(name, 0.0) for name in ("tpot_ms", "ttft_ms"))
    if score < _CLEAR:
        return _NOTHING
    return score, "faster steps: another GPU, other kernels, or one that was throttled before"


_CAUSES: Sequence[Callable[[Evidence], _Found]] = (
    _other_server, _pool, _stalls, _decode, _prefill, _front_end, _queue, _preempted, _faster,
)  # fmt: skip
