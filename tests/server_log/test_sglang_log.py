"""SGLang's log: the lines of its versions, its settings and its pool."""

from pathlib import Path

import pytest

from sim.families import open_server_log
from sim.server_log.records import Kind, Rank

DECODE = (
    "[2026-06-11 04:38:42 TP0] Decode batch, #running-req: 16, #token: 26823, token usage: 0.05, "
    "cuda graph: True, gen throughput (token/s): 1033.49, #queue-req: 3"
)
PREFILL = (
    "[2026-06-11 04:38:42 TP0] Prefill batch, #new-seq: 2, #new-token: 700, #cached-token: 300, "
    "token usage: 0.05, #running-req: 4, #queue-req: 1, #pending-token: 0, cuda graph: False, "
    "input throughput (token/s): 35.20"
)
ARGS = (
    "[2026-06-11 04:11:07] server_args=ServerArgs(model_path='/models/deepseek-r1', tp_size=8, "
    "mem_fraction_static=0.86, json_model_override_args='{\"a\": [1, 2]}', cuda_graph_bs=[1, 2], "
    "lora_paths=None, speculative=Mode(name='x', depth=[1, (2, 3)]), device=<Device.CUDA: 1>)"
)


def only(events):
    (event,) = events
    return event


def test_decode_line_has_all_of_its_values(read_log):
    log, events = read_log([DECODE])
    event = only(events)
    assert event.kind is Kind.DECODE
    assert event.line == 1
    assert event.rank == Rank(tp=0)
    assert event.fields == {
        "num_running": 16,
        "num_used_tokens": 26823,
        "token_usage_fraction": 0.05,
        "uses_graph": True,
        "generated_tokens_per_s": 1033.49,
        "num_waiting": 3,
    }
    assert log.notes() == ["times are by the server's clock, whose time zone is not in the log"]


def test_prefill_line_has_all_of_its_values(read_log):
    _, events = read_log([PREFILL])
    assert only(events).kind is Kind.PREFILL
    assert only(events).fields == {
        "num_new_requests": 2,
        "num_new_tokens": 700,
        "num_cached_tokens": 300,
        "token_usage_fraction": 0.05,
        "num_running": 4,
        "num_waiting": 1,
        "num_pending_tokens": 0,
        "uses_graph": False,
        "prompt_tokens_per_s": 35.2,
    }


# Lines as versions 0.4.6 to 0.5.23 write them, and values that only they have.
SPELLINGS = {
    "0.4.6": (
        (
            "[2025-05-01 10:00:00] Decode batch. #running-req: 1, #token: 41, token usage: 0.00, "
            "gen throughput (token/s): 0.88, #queue-req: 0, "
        ),
        {"num_running": 1, "num_waiting": 0},
    ),
    "0.4.6, prefill server": (
        (
            "[2025-05-27 21:19:46 DP1 TP3] Prefill batch. #new-seq: 1, #new-token: 1, "
            "#cached-token: 25, token usage: 0.00, #running-req: 0, #unbootstrapped-req: 2, "
            "#queue-req: 0, #transferring-req: 5 "
        ),
        {"num_bootstrapping": 2, "num_sending": 5},
    ),
    "0.4.9, windows": (
        (
            "[2025-07-01 10:00:00 TP0] Decode batch. #running-req: 1, #full token: 9, full "
            "token usage: 0.50, #swa token: 4, swa token usage: 0.25, cuda graph: True, gen "
            "throughput (token/s): 1.00, #queue-req: 0, "
        ),
        {"num_used_window_tokens": 4, "window_token_usage_fraction": 0.25},
    ),
    "0.5.4, number of the step": (
        (
            "[2025-11-01 10:00:00 TP0] Decode batch [17], #running-req: 1, #token: 9, token "
            "usage: 0.50, cpu graph: False, gen throughput (token/s): 1.00, #queue-req: 0, "
        ),
        {"step": 17, "uses_graph": False},
    ),
    "0.5.5, drafts": (
        (
            "[2025-11-01 10:00:00 DP0 TP0 EP0] Decode batch, #running-req: 1, #token: 9, token "
            "usage: 0.50, accept len: 2.75, accept rate: 0.58, cuda graph: True, gen "
            "throughput (token/s): 1.00, #queue-req: 0, "
        ),
        {"accepted_tokens_per_step": 2.75, "accepted_fraction": 0.58},
    ),
    "0.5.6, states": (
        (
            "[2025-12-01 10:00:00 TP0] Decode batch, #running-req: 1, #full token: 9, full "
            "token usage: 0.50, mamba num: 7, mamba usage: 0.10, cuda graph: True, gen "
            "throughput (token/s): 1.00, #queue-req: 0, "
        ),
        {"num_used_states": 7, "state_usage_fraction": 0.1},
    ),
    "0.5.23, decode server, milliseconds": (
        (
            "[2026-09-01 10:00:00.125 PP0 TP0] Decode batch, #running-req: 1, #token: 9, token "
            "usage: 0.50, pre-allocated usage: 0.12, #prealloc-req: 1, #transfer-req: 2, "
            "#retracted-req: 3, cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0"
        ),
        {"preallocated_fraction": 0.12, "num_receiving": 2, "num_retracted": 3},
    ),
}


@pytest.mark.parametrize("version", SPELLINGS)
def test_spelling_of_every_version_is_read(read_log, version):
    line, fields = SPELLINGS[version]
    log, events = read_log([line])
    assert only(events).fields.items() >= fields.items()
    assert log.num_not_understood == 0


def test_ranks_are_named_by_the_line(read_log):
    lines = [DECODE.replace(" TP0]", ranks) for ranks in ("]", " DP1 TP3]", " DP0 PP2 TP1 EP1]")]
    _, events = read_log(lines)
    expected = [Rank(), Rank(dp=1, tp=3), Rank(dp=0, pp=2, tp=1, ep=1)]
    assert [event.rank for event in events] == expected


def test_milliseconds_are_kept(read_log):
    log, events = read_log([DECODE, DECODE.replace("42 TP0]", "43.007 TP0]")])
    assert events[1].at_us - events[0].at_us == 1_007_000
    assert log.resolution_us == 1_000


def test_retraction_and_http_requests_are_events(read_log):
    _, events = read_log(
        [
            (
                "[2026-06-11 04:38:42 TP0] KV cache pool is full. Retract requests. "
                "#retracted_reqs: 2, #new_tokens_gained: 512, #new_token_ratio: 0.4100 -> 0.7200"
            ),
            '[2026-06-11 04:38:43] INFO:     127.0.0.1:55 - "POST /generate?a=1 HTTP/1.1" 200 OK',
            DECODE,
        ]
    )
    assert events[0].kind is Kind.RETRACT
    assert events[0].fields == {"num_retracted": 2, "num_freed_tokens": 512}
    assert events[1].fields == {"method": "POST", "path": "/generate", "status": 200}
    assert events[1].at_us - events[0].at_us == 1_000_000


def test_settings_are_read_with_nested_values(read_log):
    log, _ = read_log([ARGS, DECODE])
    assert log.server.engine == "sglang"
    assert log.server.model == "/models/deepseek-r1"
    assert log.server.flags_from == "server_args, line 1"
    assert log.server.flags["tp_size"] == 8
    assert log.server.flags["mem_fraction_static"] == 0.86
    assert log.server.flags["json_model_override_args"] == '{"a": [1, 2]}'
    assert log.server.flags["lora_paths"] is None
    assert log.server.flags["speculative"] == {"name": "x", "depth": [1, [2, 3]]}
    assert log.server.flags["device"] == "<Device.CUDA: 1>"


def test_settings_of_newest_version_are_a_dictionary(read_log):
    log, _ = read_log(
        [
            (
                "[2026-09-01 10:00:00] server_args={'model_path': 'a/b', 'dp_size': 2, 'version': "
                "'0.5.23'}"
            )
        ]
    )
    assert log.server.flags == {"model_path": "a/b", "dp_size": 2, "version": "0.5.23"}
    assert log.server.version == "0.5.23"


def test_pool_is_what_the_scheduler_says_and_that_of_the_smallest_rank(read_log):
    log, _ = read_log(
        [
            ARGS,
            (
                "[2026-06-11 04:22:35 TP1] Load weight end. elapsed=516.13 s, type=X, avail "
                "mem=58.16 GB, mem usage=79.80 GB."
            ),
            (
                "[2026-06-11 04:22:35 TP1] KV Cache is allocated. #tokens: 600, K size: 1.50 "
                "GB, V size: 1.50 GB"
            ),
            "[2026-06-11 04:22:35 TP1] KV Cache is allocated. #tokens: 20, KV size: 0.25 GB",
            "[2026-06-11 04:22:40 TP0] Capture cuda graph bs [4, 1, 2]",
            (
                "[2026-06-11 04:22:41 TP0] Capture cuda graph end. Time elapsed: 54.61 s. mem "
                "usage=1.93 GB. avail mem=8.16 GB."
            ),
            (
                "[2026-06-11 04:22:42 DP0 TP0] max_total_num_tokens=600, "
                "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=64, "
                "context_len=4096, available_gpu_mem=19.74 GB"
            ),
            (
                "[2026-06-11 04:22:42 DP1 TP0] max_total_num_tokens=590, "
                "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=64, "
                "context_len=4096, available_gpu_mem=19.74 GB"
            ),
        ]
    )
    assert log.server.kv_pool.num_tokens == 590
    assert log.server.kv_pool.memory_gib == 3.0
    assert log.server.weights_gib == 79.8
    assert log.server.graphs_gib == 1.93
    assert log.server.graph_sizes == (1, 2, 4)
    assert log.server.settings["max_running_requests"] == 64


def test_graph_sizes_of_newest_version_are_read(read_log):
    log, _ = read_log(
        [
            ARGS,
            (
                "[2026-09-01 10:00:00] Capture target prefill CUDA graph begin. backend=x, "
                "num_tokens=[16, 8], avail mem=1.00 GB"
            ),
            (
                "[2026-09-01 10:00:00] Capture draft decode CUDA graph end. bs=[9], "
                "elapsed=1.00 s, mem usage=7.00 GB, avail mem=1.00 GB."
            ),
            (
                "[2026-09-01 10:00:00] Capture target decode CUDA graph end. bs=[2, 1], "
                "elapsed=1.00 s, mem usage=0.50 GB, avail mem=1.00 GB."
            ),
        ]
    )
    assert log.server.graph_sizes == (1, 2)
    assert log.server.graphs_gib == 0.5


def test_another_start_takes_the_place_of_the_first(read_log):
    log, _ = read_log([ARGS, ARGS, DECODE, ARGS.replace("tp_size=8", "tp_size=4"), DECODE])
    assert log.num_starts == 2
    assert log.server.flags["tp_size"] == 4
    assert any("2 starts" in note for note in log.notes())


def test_prompt_that_quotes_a_batch_is_none(read_log):
    """With --log-requests, prompts are in the log."""
    quoting = f"[2026-06-11 04:38:42] Receive: obj=GenerateReqInput(text='{DECODE}')"
    log, events = read_log([DECODE, quoting])
    assert [event.line for event in events] == [1]
    assert log.num_not_understood == 1


def test_lines_that_sglang_wrote_itself_are_understood_whole():
    """Of `python -m oracle.sglang.log_lines`: each kind of memory, drafts or none, every role."""
    log = open_server_log([Path(__file__).with_name("sglang-0.5.23.log")])
    events = list(log.events())
    assert log.counts == {Kind.PREFILL: 18, Kind.DECODE: 18}
    assert log.notes() == ["times are by the server's clock, whose time zone is not in the log"]
    assert {event.rank for event in events} == {
        Rank(), Rank(tp=0), Rank(dp=1, tp=3), Rank(pp=1, tp=0, ep=0),
    }  # fmt: skip
    chosen = {
        "num_new_requests": 2, "num_new_tokens": 700, "num_cached_tokens": 300, "num_running": 6,
        "num_waiting": 3, "num_pending_tokens": 55,
    }  # fmt: skip
    for event in events:
        if event.kind is Kind.PREFILL:
            assert event.fields.items() >= chosen.items()
        else:
            assert (event.fields["num_running"], event.fields["num_waiting"]) == (4, 3)
    names = {name for event in events for name in event.fields}
    assert names >= {
        "accepted_tokens_per_step", "accepted_fraction", "window_token_usage_fraction",
        "state_usage_fraction", "num_used_states", "num_bootstrapping", "num_sending",
        "num_optimistic", "preallocated_fraction", "num_preallocating", "num_receiving",
        "num_receiving_to_host", "num_retracted", "uses_graph",
    }  # fmt: skip
