"""Why a figure drifts: causes that fit what the windows since then say, the likeliest first.

Each cause has a score, in the same spreads as the judges' scores; none of them is proved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from calibrate.watch.judge import Verdict
from sim.server_metrics.window import Window
from sim.tables.table import number

# A gap between two tokens is one of a server that stood still if it is this much longer than the
# mean, and this long.
_LONG_GAPS, _LONG_S = 10.0, 0.25
# That many long gaps a window, beside the usual ones, are no chance; and they are the cause if this
# share of all delay is in them.
_MANY_GAPS, _SHARE_OF_DELAY = 2.0, 0.3
# Seconds without a token, beside twice the usual ones, that are no chance.
_STALLED_S = 1.0
# From this score on a figure is clearly off.
_CLEAR = 1.5
# The score of a cause that was seen, not inferred: above all others.
_SEEN = 100.0
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
        """The mean of each over the windows that have it."""
        found = {}
        for field in fields(cls):
            values = (getattr(each, field.name) for each in signs)
            if known := [value for value in values if value is not None]:
                found[field.name] = sum(known) / len(known)
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when a figure drifts.

    Attributes:
        score, ratio: of each figure, means over the last windows.
        ttft_ms: TTFT, measured and predicted.
        signs, usual: of the last windows, and of those before without drift.
        changes: what was different about the server not long ago.
        late_answer_s: the longest time that it took to answer, where it usually takes far less.
    """

    score: Mapping[str, float]
    ratio: Mapping[str, float]
    ttft_ms: tuple[float, float]
    signs: Signs
    usual: Signs
    changes: Sequence[str]
    late_answer_s: float = 0.0

    def highest(self, *figures: str) -> float:
        """The highest score of these figures; 0 of one that could not be judged."""
        return max(self.score.get(name, 0.0) for name in figures)


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


_Cause = tuple[float, str]


def likely_causes(evidence: Evidence) -> list[str]:
    """Sentences about the causes that fit, the likeliest first; none may fit."""
    causes = [cause for find in _CAUSES if (cause := find(evidence)) is not None]
    return [words for _, words in sorted(causes, key=lambda cause: -cause[0])]


def _other_server(evidence: Evidence) -> _Cause | None:
    if not evidence.changes:
        return None
    return _SEEN, f"another version or other settings: {evidence.changes[-1]}"


def _pool(evidence: Evidence) -> _Cause | None:
    score = evidence.highest("kv_share_pct")
    if score < _CLEAR:
        return None
    times = number(evidence.ratio["kv_share_pct"])
    return score, f"smaller KV pool: a request takes {times} times as much of it"


def _stalls(evidence: Evidence) -> _Cause | None:
    slow, now, usual = evidence.highest("tpot_ms", "ttft_ms"), evidence.signs, evidence.usual
    if slow <= 0:
        return None
    more = now.long_gaps - usual.long_gaps
    # Where all steps are slower, long gaps are only a part of what is late.
    explains_delay = now.long_s >= _SHARE_OF_DELAY * now.late_s
    if more >= max(_MANY_GAPS, usual.long_gaps) and explains_delay:
        limit = f"{1e3 * _LONG_S:.0f} ms"
        return 2 * slow, f"stalls: {more:.0f} tokens a window came after gaps of over {limit}"
    if now.stalled_s >= 2 * usual.stalled_s + _STALLED_S:
        return 2 * slow, f"stalls: no token for {number(now.stalled_s)} s a window"
    if evidence.late_answer_s:
        return slow, f"stalls: it took {evidence.late_answer_s:.1f} s to answer"
    return None


def _decode(evidence: Evidence) -> _Cause | None:
    score = evidence.highest("tpot_ms")
    if score < _CLEAR:
        return None
    times = number(evidence.ratio["tpot_ms"])
    return score, (
        f"slower steps: TPOT is {times} times what it was at such batches (throttled clocks,"
        " another program on the GPU, other kernels)"
    )


def _prefill(evidence: Evidence) -> _Cause | None:
    score, now, usual = evidence.highest("ttft_ms"), evidence.signs, evidence.usual
    if score < _CLEAR or evidence.highest("waiting") >= _CLEAR:
        return None
    if now.prefill_ms is None or usual.prefill_ms is None:
        # The server does not say in which part of TTFT the time is.
        only_ttft = evidence.highest("tpot_ms") < score / 2
        return (0.9 * score, "slower prefill, or a slow front end") if only_ttft else None
    if now.prefill_ms < _MORE * usual.prefill_ms:
        return None
    pair = f"{number(usual.prefill_ms)} → {number(now.prefill_ms)} ms"
    return 0.9 * score, f"slower prefill: {pair} from a request's first step to its first token"


def _front_end(evidence: Evidence) -> _Cause | None:
    score, now, usual = evidence.highest("ttft_ms"), evidence.signs, evidence.usual
    if score < _CLEAR or None in (now.prefill_ms, now.queue_ms, usual.prefill_ms, usual.queue_ms):
        return None
    now_ms, usual_ms = ((one.prefill_ms or 0) + (one.queue_ms or 0) for one in (now, usual))
    engine_ms, more_ms = now_ms - usual_ms, evidence.ttft_ms[0] - evidence.ttft_ms[1]
    if engine_ms > more_ms / 2:
        return None
    return score, (
        f"the front end: TTFT is {number(more_ms)} ms longer, of which {number(max(engine_ms, 0))}"
        " ms are in the engine"
    )


def _queue(evidence: Evidence) -> _Cause | None:
    score = evidence.highest("waiting")
    if score < _CLEAR:
        return None
    # Slower steps, or a smaller pool, may be why requests wait.
    part = 1.0 if evidence.highest("tpot_ms", "kv_share_pct") <= score else 0.5
    return part * score, "requests wait that should not: other limits on what runs at a time"


def _preempted(evidence: Evidence) -> _Cause | None:
    more = evidence.signs.preempted - evidence.usual.preempted
    slow = evidence.highest("ttft_ms", "tpot_ms", "waiting")
    if more < _FEW_PREEMPTED or slow < _CLEAR:
        return None
    return 0.8 * slow, f"preemptions: {number(more)} more for each request that finishes"


def _faster(evidence: Evidence) -> _Cause | None:
    score = max(-evidence.highest(name) for name in ("tpot_ms", "ttft_ms"))
    if score < _CLEAR:
        return None
    return score, "faster steps: another GPU, other kernels, or one that was throttled before"


# Causes with equal scores stay in this order.
_CAUSES: Sequence[Callable[[Evidence], _Cause | None]] = (
    _other_server, _pool, _stalls, _decode, _prefill, _front_end, _queue, _preempted, _faster,
)  # fmt: skip
