"""Profiles of a device with a ladder of graphs, however much of the grid was measured."""

import numpy as np
import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from realrun.profiling.composition import Limits
from realrun.profiling.grid import decode, grid
from sim.latency.features import line_features
from sim.latency.graphs import graph_rows
from sim.latency.profile.model import ProfileLatency

GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8))
LIMITS = Limits(
    page_size=16, num_pages=60_000, max_rows=512, max_context=16_384, max_new_tokens=8_192
)
LAUNCH_NS = 9_000_000


def point(composition):
    """Memory-bound up to 150 padded rows; without a graph slower, and launched by the host."""
    rows, context = len(composition.decode_contexts), sum(composition.decode_contexts)
    graph = graph_rows(rows, GRAPH_SIZES)
    device_ns = 1_300_000 + max(1_500_000, 10_000 * (graph or rows)) + 1_200 * rows + 8 * context
    return {
        "kind": "point",
        "mode": "decode",
        "prefill": [],
        "n_decode": rows,
        "ctx": context,
        "max_decode_ctx": max(composition.decode_contexts),
        "padded_rows": graph,
        "forward_ns": device_ns if graph else device_ns + 400_000,
        "forward_iqr_ns": 0,
        "repeats": 1,
        "plan_ns": 300_000,
        "launch_ns": 200_000 if graph else LAUNCH_NS,
        "sample_ns": 0,
        "read_back_ns": 50_000,
    }


EVERY_ROW_COUNT = [
    point(decode(rows, context))
    for rows in range(1, 513)
    for context in (64, 1_024, 8_192)
    if LIMITS.allow(decode(rows, context))
]


@pytest.mark.parametrize(
    ("num_rounds", "share", "largest_pct"),
    [(0, 0.7, 35), (1, 0.0, 35), (1, 0.5, 15), (2, 0.0, 15), (2, 0.6, 15), (3, 0.0, 15),
     (3, 0.4, 15), (4, 0.0, 2), (5, 0.5, 2), (6, 0.0, 2)],
)  # fmt: skip
def test_ladder_every_row_count_is_predicted_after_every_cut(
    write_log, num_rounds, share, largest_pct
):
    """After some rounds and a share of the next one: no error above the limit, of 1 to 512 rows.

    The grid visits a third of the captured sizes; the log names all of them.
    """
    rounds = [[c for c in of_round if not c.prefill] for of_round in grid(LIMITS)]
    measured = [c for of_round in rounds[:num_rounds] for c in of_round]
    if share:
        order = np.random.default_rng(num_rounds).permutation(len(rounds[num_rounds])).tolist()
        measured += [rounds[num_rounds][place] for place in order[: round(share * len(order))]]
    log = write_log(map(point, measured), graph_sizes=list(GRAPH_SIZES))
    model = ProfileLatency(fit_profile(load_dataset([log]), name="cut"))
    steps = list(map(line_features, EVERY_ROW_COUNT))
    predicted = np.array([model.step_ns(step).device_ns for step in steps])
    measured_ns = np.array([line["forward_ns"] for line in EVERY_ROW_COUNT])
    wrong_pct = 100 * np.abs(predicted / measured_ns - 1)
    assert wrong_pct.max() < largest_pct
    if any(len(c.decode_contexts) > GRAPH_SIZES[-1] for c in measured):
        assert {model.launch_ns(step) for step in steps} == {0, LAUNCH_NS}
