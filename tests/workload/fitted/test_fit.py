"""Statistics of traffic, and traffic that is drawn from them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.workload.config import FittedConfig
from sim.workload.fitted.compare import compared
from sim.workload.fitted.draw import _shared_blocks, _spread
from sim.workload.fitted.fit import _levels, fit, shared_requests
from sim.workload.kinds.build import build_workload
from sim.workload.reuse.curve import hit_curve

SIZE = 16


@pytest.fixture
def rows():
    """Chats that come back: every third request continues the one before it by two blocks."""
    rng, made, ids = np.random.default_rng(5), [], 0
    chats = []
    for number in range(600):
        chat = chats.pop(int(rng.integers(len(chats)))) if chats and number % 3 else [1]
        blocks = [*chat, *range(100 + ids, 102 + ids)]
        ids += 2
        if len(blocks) < 12:
            chats.append(blocks)
        made.append(
            {"timestamp": number * 500, "input_length": len(blocks) * SIZE - 5,
             "output_length": int(rng.integers(1, 60)), "hash_ids": blocks}
        )  # fmt: skip
    return made


@pytest.fixture
def drawn(tmp_path, rows, trace):
    """The trace, and a function that draws from its statistics."""
    given_workload = trace("mooncake", rows, block_size=SIZE)
    statistics = fit(shared_requests(given_workload))
    (tmp_path / "f.json").write_text(statistics.model_dump_json())

    def draw(seed=0, **keys):
        config = FittedConfig(kind="fitted", path="f.json", **keys)
        return build_workload(config, seed=seed, base_dir=tmp_path)

    return given_workload, draw


def test_what_a_request_shares_by_hand(trace):
    """The third shares a block with the second alone, and two with the first."""
    rows = [
        {"timestamp": at, "input_length": len(ids) * SIZE, "output_length": 3, "hash_ids": ids}
        for at, ids in ((0, [1, 2, 3]), (4000, [1, 9]), (7000, [1, 2, 8]), (9000, [5]))
    ]
    found = shared_requests(trace("mooncake", rows, block_size=SIZE))
    assert found.shared_blocks.tolist() == [0, 1, 2, 0]
    assert found.pause_s.tolist() == [0, 4, 7, 0]
    assert found.run_share.tolist() == [0, 1, 0.5, 0]
    assert found.input_tokens.tolist() == [48, 32, 48, 16]


def test_drawn_traffic_is_like_the_traffic_that_it_is_drawn_for(drawn):
    """Hit rates of all caches, lengths, gaps and pauses; each within a tenth."""
    given_workload, draw = drawn
    built = draw()
    curves = hit_curve(given_workload, SIZE), hit_curve(built, SIZE)
    assert curves[0].hit_pct(10**9) > 40
    found = list(compared(shared_requests(given_workload), shared_requests(built), curves))
    assert len(found) > 15
    for row in found:
        assert row.drawn == pytest.approx(row.given, rel=0.12, abs=2), row.figure


def test_drawn_traffic_may_be_longer_and_faster(drawn):
    """Four times as many requests, twice as fast; the same bytes again."""
    _, draw = drawn
    built, half = draw(num_requests=2400), draw(num_requests=2400, time_scale=0.5)
    times, fast = ([r.spec.arrival_ns for r in each.arrivals()] for each in (built, half))
    assert built.num_requests == len(times) == 2400
    assert times[-1] == pytest.approx(2399 * 5e8, rel=0.05)
    assert fast[-1] == pytest.approx(times[-1] / 2, abs=2)
    again = draw(num_requests=2400)
    facts = [
        [(r.spec.arrival_ns, r.spec.prompt.block_ids.tolist(), r.script.num_tokens)
         for r in each.arrivals()]
        for each in (built, again, draw(1, num_requests=2400))
    ]  # fmt: skip
    assert facts[0] == facts[1] != facts[2]


def test_statistics_hold_no_id_and_no_request_of_its_own(drawn, tmp_path, rows):
    """Numbers are means of five requests and more; the ids of the trace are not among them."""
    statistics = json.loads((tmp_path / "f.json").read_text())
    assert set(statistics) == {"format", "block_size", "num_requests", "gaps_s", "cells"}
    assert sum(cell["share"] for cell in statistics["cells"]) == pytest.approx(1)
    num_levels = sum(len(cell["output_tokens"]) for cell in statistics["cells"])
    assert num_levels <= len(rows) / 5


def test_parts_of_a_mix_share_nothing(drawn, build, tmp_path):
    """Each part's blocks get ids of their own."""
    part = {"kind": "fitted", "path": "f.json", "num_requests": 50}
    parts = [{"tenant": name, "workload": part} for name in ("a", "b")]
    ids = {"a": set(), "b": set()}
    for request in build({"kind": "mix", "parts": parts}).arrivals():
        ids[request.spec.tenant].update(request.spec.prompt.block_ids.tolist())
    assert ids["a"]
    assert not ids["a"] & ids["b"]


@given(
    values=st.lists(st.integers(0, 10**6), min_size=5, max_size=300),
    num=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_levels_keep_the_mean_and_so_do_draws(values, num, seed):
    """However the values are spread."""
    levels = _levels(np.array(values))
    assert np.mean(levels) == pytest.approx(np.mean(values), abs=1e-3)
    assert list(levels) == sorted(levels)
    found = _spread(levels, num, np.random.default_rng(seed))
    assert len(found) == num
    assert (found >= 0).all()
    if found.any():
        assert found.mean() == pytest.approx(np.mean(levels))


@given(data=st.data(), num=st.integers(1, 25))
def test_shared_blocks_are_the_beginning_of_an_earlier_request(data, num):
    """No block is at two places, and a request begins as one before it or anew."""
    wanted = np.array(data.draw(st.lists(st.integers(0, 6), min_size=num, max_size=num)))
    blocks = np.array(data.draw(st.lists(st.integers(0, 8), min_size=num, max_size=num)))
    pauses = np.array(data.draw(st.lists(st.floats(0, 9), min_size=num, max_size=num)))
    arrivals = np.arange(num) * 1.0
    ids, offsets = _shared_blocks(wanted, np.ones(num), blocks, arrivals, pauses)
    chains = [tuple(ids[offsets[i] : offsets[i + 1]].tolist()) for i in range(num)]
    known = {(): True}
    for chain, length, most in zip(chains, blocks, wanted, strict=True):
        assert len(chain) == length
        shared = max(end for end in range(len(chain) + 1) if chain[:end] in known)
        assert shared <= most
        for end in range(shared + 1, len(chain) + 1):
            assert not any(chain[end - 1] in other for other in known)
        known |= {chain[:end]: True for end in range(len(chain) + 1)}


def test_sessions_that_wait_have_no_times(build):
    """A closed loop has no arrivals to fit."""
    section = {
        "kind": "clients",
        "clients": 2,
        "requests_per_client": 2,
        "think_s": {"kind": "constant", "value": 1},
        "prompt_tokens": {"kind": "constant", "value": 9},
        "output_tokens": {"kind": "constant", "value": 9},
    }
    with pytest.raises(InputError, match="--fit: needs requests with times; these wait"):
        shared_requests(build(section))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "x"}, "format: "),
        ({"gaps_s": []}, "gaps_s: must have at least 1 item, got a list"),
        ({"more": 1}, "more: "),
        ({"cells": [{"share": 2}]}, "cells.0.share: "),
    ],
)
def test_a_bad_file_is_refused_with_its_key(drawn, tmp_path, change, reason):
    """In one line."""
    path = tmp_path / "f.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError) as caught:
        drawn[1]()
    line = str(caught.value)
    assert line.startswith(f"{path}: {reason}")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("blocks", "num_requests", "reason"),
    [
        (700_000, 10, "workload: a prompt has 11"),
        (600_000, 1000, "workload.num_requests: drew 6"),
    ],
)
def test_statistics_of_absurd_prompts_are_refused(drawn, tmp_path, blocks, num_requests, reason):
    """Before memory is taken for them."""
    path = tmp_path / "f.json"
    statistics = json.loads(path.read_text())
    for cell in statistics["cells"]:
        cell["shared_blocks"], cell["pause_s"] = [blocks], [0]
    path.write_text(json.dumps(statistics))
    with pytest.raises(InputError, match=reason):
        drawn[1](num_requests=num_requests)


def test_a_file_of_empty_cells_is_refused(drawn, tmp_path):
    """Nothing could be drawn."""
    path = tmp_path / "f.json"
    statistics = json.loads(path.read_text())
    for cell in statistics["cells"]:
        cell["share"] = 0
    path.write_text(json.dumps(statistics))
    with pytest.raises(InputError, match="cells: all shares are 0"):
        drawn[1]()
