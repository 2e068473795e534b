"""Takes scrapes as they come, and says of each window what is, what should be, and what changed.

Nothing here knows a clock or a socket: a recorded dump is watched as a live server is.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from calibrate.watch.causes import Signs, evidence_of, likely_causes
from calibrate.watch.changes import TrafficChanges, server_changes
from calibrate.watch.judge import QUIET_SCORE, Judges, Verdict
from calibrate.watch.source import Late
from calibrate.watch.twin import WindowTwin
from sim.core.errors import InputError
from sim.families import FAMILIES
from sim.server_metrics.scrape import Scrape
from sim.server_metrics.window import Window, WindowBuilder
from sim.tables.table import number

# Windows that a simulation may begin before.
_KEPT_WINDOWS = 30
# Windows whose signs are those of a drift that begins, or of the time before.
_RECENT, _USUAL = 3, 30
# A change of the server explains a drift that begins within this many windows after it.
_CHANGE_WINDOWS = 10
_MAX_CAUSES = 3
_US_PER_S = 1e6
TITLES: Mapping[str, str] = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "waiting": "queue",
    "kv_share_pct": "KV per request",
}


@dataclass(frozen=True, slots=True)
class Watched:
    """One window.

    Attributes:
        number: its place, from 0.
        window: what was measured.
        verdicts: on each figure that could be judged.
        is_learning: the usual errors of TTFT and TPOT are not known yet.
        notes: what changed, began or ended with this window, in sentences.
        causes: of the drifts there are, the likeliest first.
    """

    number: int
    window: Window
    verdicts: Mapping[str, Verdict]
    is_learning: bool
    notes: Sequence[str]
    causes: Sequence[str]

    @property
    def drifts(self) -> list[str]:
        """Names of the figures that drift."""
        return [name for name, verdict in self.verdicts.items() if verdict.drifts]


@dataclass(slots=True)
class _Drift:
    """The drift that lasts now; without names, none does."""

    names: frozenset[str] = frozenset()
    causes: list[str] = field(default_factory=list)


class Watcher:
    """Watches one server, in memory that does not grow."""

    def __init__(
        self,
        twin: WindowTwin,
        family: str,
        *,
        window_s: float,
        num_learned: int,
        source: str = "the server",
    ) -> None:
        """Watch for a drift from `twin`, whose servers are of this family; errors name `source`."""
        self._twin, self._family, self._source = twin, family, source
        self._window_s, self._num_learned = window_s, num_learned
        self._builder = WindowBuilder(window_s)
        self._judges = Judges(num_learned)
        self._traffic = TrafficChanges()
        self._windows: deque[Window] = deque(maxlen=_KEPT_WINDOWS)
        self._verdicts: deque[Mapping[str, Verdict]] = deque(maxlen=_RECENT)
        self._signs: deque[Signs] = deque(maxlen=_RECENT)
        self._usual: deque[Signs] = deque(maxlen=_USUAL)
        # Changes of the server, each with the number of the window in which it came.
        self._changes: deque[tuple[int, str]] = deque(maxlen=_RECENT)
        # Answers that came late, each with the number of the window in which it did.
        self._late: deque[tuple[int, Late]] = deque(maxlen=_KEPT_WINDOWS)
        self._before: Scrape | None = None
        self._notes: list[str] = []
        self._drift = _Drift()
        self._has_learned = False
        self._number = 0

    def note_change(self, words: str) -> None:
        """Something about the server changed, which may explain a drift."""
        self._changes.append((self._number, words))
        self._notes.append(words)

    def note_late(self, answer: Late) -> None:
        """The server took long to answer, as one that stands still does."""
        self._late.append((self._number, answer))

    def take(self, scrape: Scrape) -> Watched | None:
        """Take the next scrape; returns the window that it ends, if it ends one.

        Raises:
            InputError: the server is of another family, or lacks figures.
        """
        before = self._before
        if before is None:
            self._check(scrape)
        elif scrape.missing or scrape.at_us <= before.at_us:
            return None  # a part of an answer, or a clock that was set back
        self._before = scrape
        if before is not None:
            for words in server_changes(before, scrape):
                self.note_change(words)
            # Of a longer time nobody knows when its requests came.
            is_gap = scrape.at_us - before.at_us > _US_PER_S * self._window_s
            if is_gap or scrape.is_restarted(before):
                self._builder = WindowBuilder(self._window_s)
                self._windows.clear()
        window = self._builder.take(scrape)
        return None if window is None else self._judge(window)

    def _check(self, scrape: Scrape) -> None:
        if scrape.family != self._family:
            is_of, wanted = (FAMILIES[name].title for name in (scrape.family, self._family))
            reason = f"is a server of {is_of}, but the scenario is of {wanted}"
            raise InputError(f"{self._source}: {reason}")
        if scrape.missing:
            raise InputError(f"{self._source}: has no metric for {', '.join(scrape.missing)}")
        pool, own = scrape.values.get("pool_tokens"), self._twin.pool_tokens
        if pool is not None and abs(pool - own) > own / 100:
            self._notes.append(f"KV pool: {pool:,.0f} tokens, but {own:,} in the scenario")

    def _judge(self, window: Window) -> Watched:
        self._windows.append(window)
        verdicts: Mapping[str, Verdict] = {}
        if window.num_arrived or window.figures["running"]:
            prediction = self._twin.predict(list(self._windows), self._number)
            verdicts = self._judges.take(window.figures, prediction, window.hit_rate)
        if words := self._traffic.take(window):
            self._notes.append(words)
        self._note_learned()
        self._note_late()
        self._note_drift(window, verdicts)
        notes, self._notes = self._notes, []
        watched = Watched(
            self._number,
            window,
            verdicts,
            not self._has_learned,
            notes,
            tuple(self._drift.causes),
        )
        self._number += 1
        return watched

    def _note_learned(self) -> None:
        usual = self._judges.usual_ratios()
        if self._has_learned or not {"ttft_ms", "tpot_ms"} <= set(usual):
            return
        self._has_learned = True
        ratios = ", ".join(f"{TITLES[name]} {number(usual[name])}" for name in usual)
        self._notes.append(f"learned: measured over predicted is usually {ratios}")

    def _late_answers(self, num_windows: int) -> list[Late]:
        """Those of the last windows."""
        return [late for place, late in self._late if self._number - place < num_windows]

    def _note_late(self) -> None:
        if late := self._late_answers(1):
            longest = max(late)
            times = "" if len(late) == 1 else f" ({len(late)} times)"
            self._notes.append(
                f"the server stood still, or its front end did: it answered after"
                f" {longest.took_s:.1f} s, usually after {1e3 * longest.usual_s:.0f} ms{times}"
            )

    def _note_drift(self, window: Window, verdicts: Mapping[str, Verdict]) -> None:
        """Note drifts that begin, end, or have another likely cause now."""
        tpot = verdicts.get("tpot_ms")
        signs = Signs.of(window, tpot.predicted if tpot else 0.0)
        if verdicts:
            self._verdicts.append(verdicts)
            self._signs.append(signs)
        # A figure that this window does not have drifts on.
        unknown = {name for name in self._drift.names if name not in verdicts}
        names = frozenset(n for n, verdict in verdicts.items() if verdict.drifts) | unknown
        if names:
            self._explain(names, verdicts)
        elif self._drift.names:
            self._notes.append("drift is over")
            self._drift = _Drift()
        elif all(abs(verdict.score) < QUIET_SCORE for verdict in verdicts.values()):
            self._usual.append(signs)

    def _explain(self, names: frozenset[str], verdicts: Mapping[str, Verdict]) -> None:
        changes = [
            words for place, words in self._changes if self._number - place <= _CHANGE_WINDOWS
        ]
        usual = Signs.mean(self._usual)
        late_s = max((late.took_s for late in self._late_answers(_RECENT)), default=0.0)
        evidence = evidence_of(self._verdicts, self._signs, usual, changes)
        causes = likely_causes(replace(evidence, late_answer_s=late_s))
        causes = causes[:_MAX_CAUSES] or self._drift.causes
        begun = names - self._drift.names
        if begun:
            figures = ", ".join(
                f"{TITLES[name]} {number(verdicts[name].measured)} instead of"
                f" {number(verdicts[name].predicted)}{_UNITS[name]}"
                for name in sorted(begun)
            )
            likely = causes[0] if causes else "no cause that fits"
            self._notes.append(f"DRIFT: {figures}. Likely: {likely}")
            for other in causes[1:]:
                self._notes.append(f"  or: {other}")
        self._drift = _Drift(names, causes)


_UNITS = {"ttft_ms": " ms", "tpot_ms": " ms", "waiting": " requests", "kv_share_pct": " %"}
