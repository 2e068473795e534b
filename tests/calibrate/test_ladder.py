"""Profiles of a device with a ladder of graphs, however much of the grid was measured."""

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from realrun.profiling.composition import GridLimits
from realrun.profiling.grid import decode, grid
from sim.latency.features import graph_rows, line_features
from sim.latency.profile.model import ProfileLatency

GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8))
LIMITS = GridLimits(
    page_size=16, num_pages=60_000, max_rows=512, max_context=16_384, max_new_tokens=8_192
)
LAUNCH_NS = 9_000_000
ROUNDS = [[c for c in of_round if not c.prefill] for of_round in grid(LIMITS)]


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


def limit_pct(num_rounds):
    """The largest error that is allowed after `num_rounds` rounds; 2.2: two, and a fifth of one."""
    if num_rounds < 1.2:
        return 40
    return 15 if num_rounds < 4 else 2


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(num_rounds=st.floats(0.6, len(ROUNDS)), seed=st.integers(0, 99))
@example(num_rounds=1.0, seed=0)
@example(num_rounds=2.0, seed=0)
@example(num_rounds=4.0, seed=0)
def test_ladder_every_row_count_is_predicted_after_every_cut(write_log, num_rounds, seed):
    """Wherever the budget ends: no error above the limit, for 1 to 512 rows.

    The grid visits a third of the captured sizes; the log names all of them.
    """
    measured = [c for of_round in ROUNDS[: int(num_rounds)] for c in of_round]
    if num_rounds % 1:
        last = ROUNDS[int(num_rounds)]
        order = np.random.default_rng(seed).permutation(len(last)).tolist()
        measured += [last[place] for place in order[: round(num_rounds % 1 * len(last))]]
    log = write_log(map(point, measured), graph_sizes=list(GRAPH_SIZES))
    model = ProfileLatency(fit_profile(load_dataset([log]), name="cut"))
    steps = list(map(line_features, EVERY_ROW_COUNT))
    predicted = np.array([model.step_ns(step).device_ns for step in steps])
    measured_ns = np.array([line["forward_ns"] for line in EVERY_ROW_COUNT])
    wrong_pct = 100 * np.abs(predicted / measured_ns - 1)
    assert wrong_pct.max() < limit_pct(num_rounds)
    if any(len(c.decode_contexts) > GRAPH_SIZES[-1] for c in measured):
        assert {model.launch_ns(step) for step in steps} == {0, LAUNCH_NS}
