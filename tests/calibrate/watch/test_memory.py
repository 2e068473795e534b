"""A watch keeps no more after a thousand windows than after a few."""

from collections import deque

from calibrate.watch.outputs import Outputs
from calibrate.watch.twin import Prediction
from calibrate.watch.watcher import Watcher
from tests.support.scrapes import scrape

FIGURES = {"ttft_ms": 200.0, "tpot_ms": 20.0, "running": 2.0, "waiting": 0.0, "kv_pct": 4.0}


class StillTwin:
    """Predicts the same figures always."""

    pool_tokens = 1_000

    def predict(self, windows, number):
        return Prediction([FIGURES, FIGURES], 60.0)


def scrape_of(number):
    """Drifts come and go, and so does traffic of another form."""
    return scrape(
        20 * number,
        requests=20 * number,
        running=2,
        kv_usage=0.04,
        prompt_tokens=20 * 500 * number,
        generation_tokens=20 * 40 * number,
        tokens=800 * number,
        ttfts=20 * number,
        info={"generation": str(number // 5)},
    )


def kept(thing, seen=None):
    """How many objects an object leads to."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | str | int | float | None):
        return 0
    seen.add(id(thing))
    inner = list(getattr(thing, "__dict__", {}).values())
    inner += [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ())]
    if isinstance(thing, dict):
        inner += thing.values()
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        inner += thing
    return 1 + len(inner) + sum(kept(each, seen) for each in inner)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("calibrate.watch.outputs._KEPT_ROWS", 50)
    monkeypatch.setattr("calibrate.watch.outputs._KEPT_NOTES", 50)
    watcher = Watcher(StillTwin(), "vllm", window_s=20, num_learned=6)
    outputs = Outputs(lambda _line: None, out=None, exporter=None, refresh_s=0)
    sizes = []
    for number in range(1_100):
        watched = watcher.take(scrape_of(number))
        if watched is not None:
            outputs.take(watched, draws_page=False)
        if number in {150, 1_099}:
            sizes.append(kept(watcher) + kept(outputs))
    assert sizes[1] <= 1.02 * sizes[0]
    assert sizes[0] > 1_000
