"""What real vLLM 0.26.0 servers on H100s and an H200 decided, step by step (data/README.md).

Our engine gets the events of the server's engine in their order. Every step must be decided as the
server decided it.
"""

import pytest

from tests.support.vllm_server import Twin, events_of, workload_of

# The servers' folders, their loads, and in how many steps the server served each.
LARGE, FAULTS, SMALL = (
    f"vllm-0.26-h100-llama-3.1-8b{name}" for name in ("", "-faults", "-small-pool")
)
MOE, H200, EAGER = (
    f"vllm-0.26-h200-{name}" for name in ("qwen3-30b-a3b", "llama-3.1-8b", "llama-3.1-8b-eager")
)
NUM_STEPS = {
    (LARGE, "warm"): 291, (LARGE, "rate12"): 2379, (LARGE, "clients64"): 1610,
    (LARGE, "prefixes"): 1710, (LARGE, "rate20"): 1390, (LARGE, "burst"): 282,
    (LARGE, "bench"): 1792, (LARGE, "rate4"): 3256,
    (FAULTS, "warm"): 293, (FAULTS, "rate12"): 2484, (FAULTS, "stall"): 2008,
    (FAULTS, "neighbour"): 1926,
    (MOE, "warm"): 101, (MOE, "rate4"): 1191, (MOE, "rate12"): 679, (MOE, "clients64"): 1601,
    (MOE, "prefixes"): 814, (MOE, "burst"): 471,
    (H200, "warm"): 354, (H200, "rate12"): 3326, (H200, "prefixes"): 1858, (H200, "agents"): 2815,
    (EAGER, "warm"): 177, (EAGER, "rate12"): 1399,
    (SMALL, "warm"): 286, (SMALL, "rate20"): 1817, (SMALL, "burst"): 1139,
}  # fmt: skip


@pytest.fixture(scope="module")
def events_of_loads():
    return {
        (server, load): events
        for server in (LARGE, FAULTS, SMALL, MOE, H200, EAGER)
        for load, events in events_of(server).items()
    }


def comparable(step):
    """The step with its rows in order, those with several tokens first, as batches have them here.

    vLLM names finished and resumed requests in no order.
    """
    rows = sorted(step["n"].items(), key=lambda row: row[1] == 1)
    return {**step, "n": rows, "f": sorted(step["f"]), "res": sorted(step["res"])}


def first_difference(twin, events):
    """How many steps are equal; then ours and the server's, if another one is not."""
    num_equal = 0
    for event in events:
        if event["e"] == "a":
            twin.add(event)
        elif event["e"] == "u":
            twin.take_in(event)
        else:
            ours = comparable(twin.decide(event))
            theirs = comparable({name: event[name] for name in ours})
            if ours != theirs:
                return num_equal, ours, theirs
            num_equal += 1
    return num_equal, None, None


@pytest.mark.parametrize("run", NUM_STEPS, ids="/".join)
def test_vllm_server_step_is_decided_as_by_the_server(run, events_of_loads, tmp_path):
    """Rows and their tokens, cached tokens, preemptions, free blocks, queue, who has finished."""
    twin = Twin(run[0], workload_of(run, events_of_loads[run], tmp_path), version="0.33.0")
    num_equal, ours, theirs = first_difference(twin, events_of_loads[run])
    assert ours == theirs, f"step {num_equal + 1} of {run}"
    assert num_equal == NUM_STEPS[run]


def test_vllm_server_preempted(events_of_loads):
    """The small pools show what the large one does not."""
    steps = [event for run in NUM_STEPS for event in events_of_loads[run] if event["e"] == "s"]
    assert sum(len(step["pre"]) for step in steps) == 99


@pytest.mark.parametrize(
    ("run", "setting", "num_equal"),
    [
        ((LARGE, "warm"), {"num_gpu_blocks_override": 28_933}, 0),
        ((LARGE, "clients64"), {"max_num_batched_tokens": 8_191}, 10),
        ((LARGE, "prefixes"), {"enable_prefix_caching": False}, 40),
        ((LARGE, "burst"), {"max_num_seqs": 64}, 67),
        # A preempted request finds one block less in the cache than vLLM 0.26.0 does.
        ((SMALL, "rate20"), {"version": "0.19.0"}, 228),
        ((SMALL, "burst"), {"version": "0.19.0"}, 145),
    ],
)
def test_vllm_server_other_settings_decide_otherwise(run, setting, num_equal, events_of_loads):
    """The comparison does notice: the pool, the budget, the prefix cache, the request slots, and
    the rules of another version.
    """
    twin = Twin(run[0], workload_of(run, (), None), **setting)
    found, ours, theirs = first_difference(twin, events_of_loads[run])
    assert (found, ours == theirs) == (num_equal, False)
