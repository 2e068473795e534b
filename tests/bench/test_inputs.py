"""Both simulators of a comparison get the same input."""

import json

import numpy as np
import pytest

from bench.inputs import NUM_CHATS, agents, chats, renamed_blocks, turns
from bench.places import SCENARIOS
from bench.step_times import step_time_table
from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.kinds.linear import LinearLatency
from sim.scenario.load import load_scenario
from sim.workload.config import SessionsConfig
from sim.workload.traces.block_traces import read_mooncake
from sim.workload.traces.servetwin import read_servetwin


def test_chats_both_files_have_the_same_requests(tmp_path):
    """Arrival, prompt and output, though each file has its own format."""
    ours, theirs = chats(tmp_path)
    rows = read_servetwin(ours, limit=None)
    others = json.loads(theirs.read_text(encoding="utf-8"))
    assert len(rows.arrival_ns) == len(others) == NUM_CHATS
    arrivals_s = [other["timestamp"] for other in others]
    assert (rows.arrival_ns / 1e9).tolist() == pytest.approx(arrivals_s)
    assert rows.output_tokens.tolist() == [other["output_tokens"] for other in others]
    assert rows.prompts.num_tokens.tolist() == [other["prompt_tokens"] for other in others]


@pytest.mark.parametrize(
    ("write", "block", "name"), [(turns, 128, "cache-pressure"), (agents, 512, "agents")]
)
def test_conversations_are_as_long_as_those_of_the_scenario(tmp_path, write, block, name):
    """Prompts of every conversation, and the tokens that all of them have in common at most."""
    path = write(tmp_path)
    theirs = read_mooncake(path, limit=None, block_size=block)
    workload = load_scenario(SCENARIOS / f"{name}.yaml", []).scenario.workload
    assert isinstance(workload, SessionsConfig)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    user, later = workload.user_tokens.value, workload.turns.value - 1
    first = user + workload.system_prompts.tokens
    assert [row["input_length"] for row in rows] == [first, *[user] * later] * workload.sessions
    think_ms = 1000 * workload.think_s.value
    assert [row["delay"] for row in rows] == [None, *[think_ms] * later] * workload.sessions
    assert set(theirs.output_tokens) == {workload.output_tokens.value}


def test_renamed_blocks_only_the_first_ones_stay_shared():
    """Later blocks are found nowhere else, and everything but the ids is as it was."""
    rows = [{"hash_ids": [1, 2, 3], "timestamp": 5}, {"hash_ids": [1, 2, 3], "timestamp": 6}]
    first, second = renamed_blocks(iter(rows), 1)
    assert first["hash_ids"][0] == second["hash_ids"][0] == 1
    assert len({*first["hash_ids"], *second["hash_ids"]}) == 5
    assert [first["timestamp"], second["timestamp"]] == [5, 6]


def interpolated_decode_ms(table, context, mean_context):
    """A time from the table, interpolated bilinearly."""
    per_context = [
        np.interp(mean_context, table["decode_context_length"], row) for row in table["decode_itl"]
    ]
    return np.interp(context, table["decode_active_kv_tokens"], per_context)


@pytest.mark.parametrize(("rows", "context"), [(1, 700), (7, 90_000), (300, 800_000)])
def test_step_time_table_is_the_linear_model(rows, context):
    """Within 3 in 10,000 for decode steps, exactly for prompts but for their context."""
    table = step_time_table(
        step_s=0.0057, prefill_token_s=2.5e-5, decode_row_s=1e-4, context_token_s=1e-8
    )
    model = LinearLatency(
        step_s=0.0057,
        per_prefill_token_s=2.5e-5,
        per_decode_request_s=1e-4,
        per_context_token_s=1e-8,
    )
    step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context)
    decode_ms = interpolated_decode_ms(table, context, context / rows)
    assert decode_ms == pytest.approx(model.step_ns(step).device_ns / 1e6, rel=3e-4)
    prefill_ms = np.interp(8_192, table["prefill_isl"], table["prefill_ttft_ms"])
    assert prefill_ms == pytest.approx(5.7 + 8_192 * 0.025)
