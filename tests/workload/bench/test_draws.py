"""Lengths and times are those that the programs draw, from figures of the programs themselves."""

import numpy as np
import pytest
from pydantic import ValidationError

import servetwin as st
from sim.core.errors import InputError

SGLANG = {
    "kind": "bench", "client": "sglang", "seed": 1,
    "num_prompts": 500, "input_len": 1000, "output_len": 1000,
}  # fmt: skip
SMALL = {"kind": "bench", "num_prompts": 4, "input_len": 300, "output_len": 100}


def lengths(workload):
    requests = [turn.request for turn in workload.phases[-1].turns]
    return (
        [len(request.spec.prompt) for request in requests],
        [request.spec.max_new_tokens for request in requests],
    )


def asked_s(workload):
    return [turn.think_ns / 1e9 for turn in workload.phases[-1].turns]


def test_sglang_draws_the_totals_that_the_program_prints(build):
    """sglang.bench_serving with seed 1 and 500 requests of up to 1,000/1,000."""
    prompts, outputs = lengths(build(SGLANG))
    assert (sum(prompts), sum(outputs)) == (249_831, 252_662)
    # The client takes special tokens off, and the tokenizer adds them again.
    assert lengths(build(SGLANG | {"special_tokens": 1}))[0] == [max(2, n) for n in prompts]


def test_inferencex_draws_the_published_lengths(build):
    """Seed 0, 1024/1024, concurrency 4: lengths are at least 0.8 of the largest."""
    section = {"kind": "bench", "client": "inferencex", "num_prompts": 40, "max_concurrency": 4}
    workload = build(section | {"input_len": 1024, "output_len": 1024})
    prompts, outputs = lengths(workload)
    assert prompts[:8] == [991, 866, 936, 1011, 886, 1014, 922, 828]
    assert outputs[:8] == [851, 1012, 828, 1004, 946, 851, 850, 1021]
    assert len(workload.phases[0].turns) == 8


def test_vllm_draws_around_the_mean_without_the_special_tokens(build):
    """RandomDataset: floor and ceiling of the mean's range; the same generator gives both."""
    section = SMALL | {"client": "vllm", "seed": 3, "range_ratio": 0.37, "special_tokens": 1}
    rng = np.random.default_rng(3)
    expected = (rng.integers(188, 411, size=4) + 1).tolist(), rng.integers(63, 138, size=4).tolist()
    assert lengths(build(section)) == expected
    constant = lengths(build(section | {"range_ratio": 0.0}))
    assert constant == ([300] * 4, [100] * 4)


def test_aiperf_draws_normal_lengths_from_a_generator_for_each_purpose(build):
    """As AIPerf 0.13.0's own generators do with seed 100."""
    section = SMALL | {"client": "aiperf", "seed": 100, "special_tokens": 1, "num_prompts": 5}
    spread = {"input_len_stddev": 200, "output_len_stddev": 120}
    assert lengths(build(section | spread)) == (
        [415, 370, 74, 359, 487],
        [171, 115, 7, 28, 130],
    )
    assert lengths(build(section)) == ([300] * 5, [100] * 5)


def test_aiperf_takes_its_prompts_in_turn_warm_up_first(build):
    """Five prompts; the warm-up takes two, and the measured requests begin with the third."""
    section = SMALL | {"client": "aiperf", "num_prompts": 7, "dataset_entries": 5}
    workload = build(section | {"warmup_requests": 2})
    warm, measured = (
        [turn.request.spec.prompt.segments for turn in phase.turns] for phase in workload.phases
    )
    assert measured[:3] + warm == [*measured[:3], *measured[3:5]]
    assert measured[5:] == measured[:2]


@pytest.mark.parametrize("client", ["sglang", "vllm", "inferencex"])
def test_all_requests_are_asked_for_at_once_without_a_rate(build, client):
    """Only the limit on requests under way holds them back."""
    assert asked_s(build(SMALL | {"client": client})) == [0.0] * 4


def test_gaps_are_drawn_after_the_lengths(build):
    """SGLang: one generator for all; vLLM: a generator of its own, stretched to number / rate."""
    rate = {"seed": 7, "request_rate": 2.0}
    rng = np.random.RandomState(7)
    rng.randint(1, 301, size=4), rng.randint(1, 101, size=4)
    expected = [0.0, *np.cumsum(rng.exponential(0.5, 4))[:3]]
    assert asked_s(build(SMALL | rate | {"client": "sglang"})) == pytest.approx(expected, abs=1e-9)
    drawn = np.cumsum(np.random.RandomState(7).gamma(0.5, 1.0, 4))
    vllm = build(SMALL | rate | {"client": "vllm", "burstiness": 0.5})
    assert asked_s(vllm) == pytest.approx((drawn * 2 / drawn[-1]).tolist(), abs=1e-9)


def test_aiperf_looks_for_places_at_random_times(build):
    """The first of AIPerf's Poisson times with seed 100, and equal gaps."""
    section = SMALL | {"client": "aiperf", "seed": 100, "request_rate": 5.0}
    constant = build(section | {"arrival_pattern": "constant"}).phases[-1].ticks()
    assert [next(constant) for _ in range(3)] == [200_000_000, 400_000_000, 600_000_000]
    poisson, again = (build(section).phases[-1].ticks() for _ in range(2))
    times = [next(poisson) for _ in range(4)]
    assert times == [next(again) for _ in range(4)] == sorted(times)


def test_warm_up_is_the_first_prompt_again_and_again(build):
    """SGLang: 32 tokens at most, then a second's pause; a flush makes its prompt useless."""
    warm_up, measured = build(SGLANG | {"warmup_requests": 3}).phases
    first = measured.turns[0].request
    requests = [turn.request for turn in warm_up.turns]
    assert {request.spec.prompt.segments for request in requests} == {first.spec.prompt.segments}
    assert {request.spec.max_new_tokens for request in requests} == {32}
    assert all(request.spec.warm_up and request.spec.ignore_eos for request in requests)
    assert not first.spec.warm_up
    assert measured.pause_ns == 10**9
    flushed, measured = build(SGLANG | {"flush_cache": True}).phases
    other = flushed.turns[0].request.spec.prompt
    first = measured.turns[0].request.spec.prompt
    assert len(other) == len(first)
    assert other.segments != first.segments


def test_runs_before_send_the_same_requests_and_count_nowhere(build):
    """Two runs with warm-up and pause, then the measured one; no id is there twice."""
    plain = build(SGLANG | {"num_prompts": 3})
    phases = build(SGLANG | {"num_prompts": 3, "runs_before": 2}).phases
    assert len(phases) == 6
    for run in (phases[:2], phases[2:4], phases[4:]):
        assert [phase.pause_ns for phase in run] == [0, 10**9]
        for phase, once in zip(run, plain.phases, strict=True):
            found = [turn.request for turn in phase.turns]
            assert [r.spec.prompt.segments for r in found] == [
                turn.request.spec.prompt.segments for turn in once.turns
            ]
    rids = [turn.request.spec.rid for phase in phases for turn in phase.turns]
    assert len(set(rids)) == len(rids) == 12
    counted = [turn.request.spec.rid for phase in phases for turn in phase.turns
               if not turn.request.spec.warm_up]  # fmt: skip
    assert counted == ["0", "1", "2"]


def test_a_run_after_others_finds_their_prompts():
    """Without a flush a benchmark's second run measures the cache: 15 of 16 blocks of 16 tokens."""
    section = {"kind": "bench", "client": "vllm", "num_prompts": 4, "input_len": 256}
    rates = []
    for num_runs in (0, 1):
        scenario = {
            "name": "again",
            "latency": {"kind": "linear", "step_s": 0.01, "per_prefill_token_s": 0,
                        "per_decode_request_s": 0, "per_context_token_s": 0},
            "workload": section | {"output_len": 4, "runs_before": num_runs},
            "scheduler": {"family": "vllm", "num_gpu_blocks_override": 200,
                          "max_model_len": 512, "max_num_batched_tokens": 512},
        }  # fmt: skip
        summary = st.run(scenario).summary
        assert summary["submitted"] == 4
        rates.append(summary["cache_hit_rate_pct"])
    assert rates == [0, pytest.approx(100 * 15 / 16)]


def test_prefix_and_special_tokens_begin_every_prompt(build):
    """They are one text; the rest of each prompt is its own."""
    section = SMALL | {"client": "vllm", "prefix_len": 20, "special_tokens": 1}
    prompts = [turn.request.spec.prompt.segments for turn in build(section).phases[-1].turns]
    assert len({prompt[0] for prompt in prompts}) == 1
    assert prompts[0][0][1] == 21
    assert len({prompt[1] for prompt in prompts}) == 4


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"client": "aiperf", "range_ratio": 0.5}, "range_ratio goes with client sglang, vllm"),
        ({"client": "vllm", "range_ratio": 1}, "must be less than 1"),
        (
            {"client": "sglang", "flush_cache": True, "runs_before": 1},
            "leaves nothing of runs_before",
        ),
        ({"client": "vllm", "burstiness": 2.0}, "burstiness needs a request_rate"),
        ({"client": "inferencex", "request_rate": 1.0}, "request_rate needs vocab_size"),
        ({"client": "inferencex", "chat_template_tokens": 300}, "leaves nothing of input_len"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(build, section, message):
    """One reason, which names the key."""
    with pytest.raises(ValidationError, match=message):
        build(SMALL | section)


def test_length_of_zero_is_refused(build):
    """InferenceX's client would ask for an empty answer."""
    section = SMALL | {"client": "inferencex", "range_ratio": 0.0, "num_prompts": 2000}
    with pytest.raises(InputError, match="drew a length of 0 tokens"):
        build(section)
