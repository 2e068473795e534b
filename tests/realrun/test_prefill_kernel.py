"""The choice between FlashInfer's two prefill kernels, and what it costs on real GPUs."""

from pathlib import Path

import numpy as np
import pytest

from realrun.attention.flashinfer import choose_prefill_kernel
from realrun.batches.batch_plan import plan_batch
from sim.runlog.run_log_file import read_run_log

DATA = Path(__file__).parents[2] / "data"


def make_plan(query_lens, kv_lens):
    return plan_batch(
        page_table=np.zeros((len(kv_lens), -(-max(kv_lens) // 16)), dtype=np.int32),
        query_lens=np.array(query_lens, dtype=np.int32),
        kv_lens=np.array(kv_lens, dtype=np.int32),
        samples=np.ones(len(kv_lens), dtype=np.int64),
        page_size=16,
    )


@pytest.mark.parametrize(
    ("query_lens", "kv_lens", "kernel"),
    [
        ([160], [160], "fa3"),
        ([159], [159], "fa2"),  # too few tiles
        ([64] * 4, [64] * 4, "fa3"),
        ([63] * 4, [63] * 4, "fa2"),  # each row fills less than half a tile
        ([512], [65_536], "fa3"),
        ([512], [65_537], "fa2"),  # a chunk behind a very long context
        ([640, *[1] * 9], [640, *[9_000] * 9], "fa3"),
        ([640, *[1] * 9], [640, *[9_200] * 9], "fa2"),  # long decode rows beside a chunk
        ([640, *[1] * 10], [640, *[100] * 10], "fa2"),  # and short ones, if there are many
    ],
)
def test_choose_prefill_kernel(query_lens, kv_lens, kernel):
    """fa3 wants 160 new tokens, 64 a row in the mean, and at most 128 times as many in all."""
    assert choose_prefill_kernel(make_plan(query_lens, kv_lens)) == kernel


def measured_times(gpu, model, kernel):
    """Of every prefill and mixed batch: new tokens and all tokens of its rows, and GPU time."""
    log = read_run_log(DATA / gpu / f"profile-{model}-{kernel}.jsonl.gz")
    times = {}
    for point in log.points:
        rows, num_decode = point["prefill"], point["n_decode"]
        query_lens = [row[2] for row in rows] + [1] * num_decode
        kv_lens = [row[1] + row[2] for row in rows]
        of_decode = np.linspace(0, point["ctx"] - sum(kv_lens), num_decode + 1).round()
        kv_lens += np.diff(of_decode).astype(int).tolist()
        # A batch whose rows have one new token each goes to the decode kernel.
        if sum(query_lens) > len(query_lens):
            of_rows = str(sorted(rows)), point["max_decode_ctx"]
            times[(tuple(query_lens), tuple(kv_lens), of_rows)] = point["forward_ns"]
    return times


@pytest.mark.parametrize(
    ("gpu", "model", "num_batches", "means", "largest", "num_above_5"),
    [
        ("h200", "llama-3.1-8b", 325, {"chosen": 0.44, "fa2": 7.55, "fa3": 9.23}, 40.38, 7),
        ("h100", "llama-3.1-8b", 29, {"chosen": 0.14, "fa2": 5.36, "fa3": 18.39}, 3.78, 0),
        ("h200", "qwen2.5-0.5b", 54, {"chosen": 2.51, "fa2": 13.46, "fa3": 191.88}, 59.67, 3),
    ],
)
def test_choice_takes_hardly_longer_than_the_better_kernel(
    gpu, model, num_batches, means, largest, num_above_5
):
    """Both kernels were measured at the same batches of one model; losses in percent."""
    times = {kernel: measured_times(gpu, model, kernel) for kernel in ("fa2", "fa3")}
    assert times["fa2"].keys() == times["fa3"].keys()
    lost_pct = {"chosen": [], "fa2": [], "fa3": []}
    for batch, fa2_ns in times["fa2"].items():
        of = {"fa2": fa2_ns, "fa3": times["fa3"][batch]}
        of["chosen"] = of[choose_prefill_kernel(make_plan(*batch[:2]))]
        for name, losses in lost_pct.items():
            losses.append(100 * (of[name] / min(of.values()) - 1))
    assert len(lost_pct["chosen"]) == num_batches
    assert {name: np.mean(losses) for name, losses in lost_pct.items()} == pytest.approx(
        means, abs=0.01
    )
    assert max(lost_pct["chosen"]) == pytest.approx(largest, abs=0.1)
    assert sum(loss > 5 for loss in lost_pct["chosen"]) == num_above_5
