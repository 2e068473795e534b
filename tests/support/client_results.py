"""Writes a known run as GuideLLM, GenAI-Perf, LLMPerf, inference-perf and AIBrix would."""

import json
from collections.abc import Sequence

from sim.core.units import NS_PER_S
from tests.support.result_files import EPOCH_S, ServedRequest


def guidellm(served: Sequence[ServedRequest]) -> str:
    requests = [
        {
            "request_id": one.rid,
            "request_args": None,
            "info": {
                "conversation_id": one.rid,
                "turn_index": 0,
                "error": None,
                "timings": {
                    "request_start": _clock_s(one.arrival_ns),
                    "first_token_iteration": _clock_s(one.first_token_ns),
                    "last_token_iteration": _clock_s(one.finish_ns),
                    "token_iterations": len(one.answer),
                },
            },
            "prompt_tokens": len(one.prompt),
            "output_tokens": len(one.answer),
        }
        for one in served
    ]
    benchmark = {
        "config": {"strategy": {"type_": "concurrent", "streams": 2}},
        "requests": {"successful": requests, "incomplete": [], "errored": []},
    }
    return json.dumps(
        {
            "metadata": {"version": 2, "guidellm_version": "0.8.1"},
            "config": {"spec": {"backend": {"model": "org/Model-1B"}}},
            "benchmarks": [benchmark],
        }
    )


def inference_perf(served: Sequence[ServedRequest]) -> str:
    return json.dumps(
        [
            {
                "start_time": _clock_s(one.arrival_ns),
                "end_time": _clock_s(one.finish_ns),
                "request": "",
                "response": None,
                "info": {
                    "request_metrics": {"text": {"input_tokens": len(one.prompt)}},
                    "response_metrics": {
                        "output_tokens": len(one.answer),
                        "server_usage": None,
                        "chunk_times": [time_ns / NS_PER_S for time_ns in _tokens_ns(one)],
                    },
                    "input_tokens": len(one.prompt),
                },
                "error": None,
            }
            for one in served
        ]
    )


def genai_perf(served: Sequence[ServedRequest]) -> str:
    requests = []
    for one in served:
        usage = {"prompt_tokens": len(one.prompt), "completion_tokens": len(one.answer)}
        token = {"response": 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'}
        last = {"response": f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"}
        times = _tokens_ns(one)
        requests.append(
            {
                "timestamp": EPOCH_S * NS_PER_S + one.arrival_ns,
                "request_inputs": {"payload": json.dumps({"model": "org/Model-1B"})},
                "response_timestamps": [*times, times[-1]],
                "response_outputs": [*[token] * len(times), last],
            }
        )
    experiment = {"experiment": {"mode": "concurrency", "value": 2}, "requests": requests}
    return json.dumps({"service_kind": "openai", "experiments": [experiment]})


def llmperf(served: Sequence[ServedRequest]) -> str:
    """The requests; `llmperf_summary` goes beside them."""
    return json.dumps(
        [
            {
                "error_code": None,
                "error_msg": "",
                "ttft_s": (one.first_token_ns - one.arrival_ns) / NS_PER_S,
                "end_to_end_latency_s": (one.finish_ns - one.arrival_ns) / NS_PER_S,
                "number_output_tokens": len(one.answer),
                "number_input_tokens": len(one.prompt),
            }
            for one in sorted(served, key=lambda one: one.finish_ns)
        ]
    )


def llmperf_summary(num_clients: int) -> str:
    return json.dumps({"model": "org/Model-1B", "num_concurrent_requests": num_clients})


def aibrix(served: Sequence[ServedRequest]) -> str:
    """One user for each request."""
    header = (
        "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,"
        "finish_time"
    )
    lines = [header]
    for user, one in enumerate(served):
        ttft_s, decode_s = (
            ns / NS_PER_S
            for ns in (one.first_token_ns - one.arrival_ns, one.finish_ns - one.first_token_ns)
        )
        times = f"{_clock_s(one.arrival_ns)},{_clock_s(one.finish_ns)}"
        lines.append(
            f"{len(one.prompt)},{len(one.answer)},{ttft_s:.9f},{decode_s:.9f},{user},1,{times}"
        )
    return "\n".join(lines) + "\n"


def inferencex() -> dict[str, object]:
    """An aggregate of one server, with the keys of InferenceX at 843c6254f."""
    return {
        "hw": "h200",
        "conc": 2,
        "image": "vllm/vllm-openai:v0.25.1",
        "model": "Qwen/Qwen3-8B",
        "infmax_model_prefix": "qwen",
        "framework": "vllm",
        "precision": "bf16",
        "spec_decoding": "none",
        "disagg": False,
        "recipe_fingerprint": "0" * 64,
        "isl": 64,
        "osl": 16,
        "is_multinode": False,
        "tp": 1,
        "pp": 1,
        "dcp_size": 1,
        "pcp_size": 1,
        "ep": 1,
        "dp_attention": "false",
        "tput_per_gpu": 15000.5,
        "output_tput_per_gpu": 12000.0,
        "input_tput_per_gpu": 3000.5,
        "mean_ttft": 0.1505,
        "p99_ttft": 0.2503,
        "mean_tpot": 0.025,
        "mean_intvty": 40.0,
    }


def _clock_s(time_ns: int) -> float:
    return EPOCH_S + time_ns / NS_PER_S


def _tokens_ns(one: ServedRequest) -> list[int]:
    """When the tokens came, on the clock of the results."""
    gaps = max(1, len(one.answer) - 1)
    span_ns = one.finish_ns - one.first_token_ns
    start_ns = EPOCH_S * NS_PER_S + one.first_token_ns
    return [start_ns + span_ns * place // gaps for place in range(len(one.answer))]
