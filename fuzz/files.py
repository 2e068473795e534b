"""Good files of every kind, small ones, from which the hostile ones are made."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.mutate import (
    MODULE,
    TRAP,
    VALUES,
    json_file,
    json_lines,
    mutated_bytes,
    mutated_tree,
    table,
)
from fuzz.scenarios import BASE, OTHERS, SCENARIOS
from sim.cli import main as simulate
from sim.commands.run import simulate_built
from sim.des.run import RunOptions
from sim.latency.profile.files import load_profile, shipped_profiles
from sim.latency.profile.model import ProfileLatency
from sim.runlog.measured import MeasuredRun, write_measured
from sim.runlog.run_log_file import write_run_log
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sweep.store import digest_of
from sim.testing import client_results, result_files
from sim.testing.measured_runs import measured_run
from sim.workload.traces.servetwin import servetwin_line

Changed = Callable[[bytes, Random], bytes]

TRACES = {
    "mooncake": "mooncake.jsonl",
    "azure": "azure.csv",
    "servetwin": "servetwin.jsonl",
    "autobench": "autobench.jsonl",
    "burstgpt": "burstgpt.csv",
    "bailian": "bailian.jsonl",
    "weka": "weka.jsonl",
    "sharegpt": "sharegpt.jsonl",
    "lmsys": "lmsys.jsonl",
}


def write_files(folder: Path) -> None:
    """Write every single file that a case needs into a folder, the working directory."""
    for name, scenario in {**SCENARIOS, **OTHERS}.items():
        (folder / name).write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    trap = f"open({str(TRAP)!r}, 'w').close()\nclass Policy: pass\n"
    (folder / f"{MODULE}.py").write_text(trap, encoding="utf-8")
    _write_traces(folder)
    for name, trace in TRACES.items():
        workload = {"kind": "trace", "format": name, "path": trace}
        (folder / f"trace-{name}.yaml").write_text(json.dumps({**BASE, "workload": workload}))
    _write_results(folder)
    _write_logs(folder)
    _write_tables(folder)


def write_folders(folder: Path) -> None:
    """Write the folders of a run, of a sweep and of a search, after `write_files`."""
    simulate(["run", "base.yaml", "--out", str(folder / "run")])
    simulate(["sweep", "sweep.yaml", "--out", str(folder / "sweep"), "--jobs", "1"])
    simulate(["tune", "tune.yaml", "--out", str(folder / "tune"), "--jobs", "1"])


def _write_traces(folder: Path) -> None:
    rows = range(12)
    mooncake = [
        {"timestamp": 40 * i, "input_length": 700, "output_length": 5, "hash_ids": [i % 3, 100 + i]}
        for i in rows
    ]
    autobench = [
        {
            "timestamp": 40 * i,
            "prompt": [[7] * 40, f"text {i}" * 9][i % 2],
            "output_len": 5,
            **({"prompt_len": 30} if i % 2 else {}),
        }
        for i in rows
    ]
    servetwin = [
        {
            "rid": f"r{i}",
            "segments": [[1, 64], [10 + i, 20]],
            "output_len": 5,
            "priority": i % 2,
            "tenant": "a",
            "session": "s",
        }
        for i in rows
    ]
    stamps = [f"2023-11-16 18:15:{i:02}.6805900,{50 + i},{5 + i}" for i in rows]
    azure = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *stamps])
    bailian = [
        {"chat_id": i, "parent_chat_id": i - 4 if i > 3 else -1, "timestamp": i / 20, "turn": 1,
         "type": "text", "input_length": 40, "output_length": 5, "hash_ids": [i % 3, 100 + i]}
        for i in rows
    ]  # fmt: skip
    calls = [{"t": 9.0 * i, "type": "s", "in": 200, "out": 5, "hash_ids": [1, 2, 3], "api_time": 2,
              **({"think_time": 0.5} if i % 2 else {})} for i in range(3)]  # fmt: skip
    sub_agent = {"type": "subagent", "t": 30, "requests": calls}
    weka = [
        {"id": f"s{i}", "block_size": 64, "hash_id_scope": "local", "requests": [*calls, sub_agent]}
        for i in range(3)
    ]
    turns = [("user", "What is it? " * 9), ("assistant", "It is that. " * 4)] * 2
    said = [{"from": {"user": "human"}.get(who, "gpt"), "value": text} for who, text in turns]
    chat = [{"role": who, "content": text} for who, text in turns]
    _write_lines(folder / TRACES["bailian"], bailian)
    _write_lines(folder / TRACES["weka"], weka)
    _write_lines(folder / TRACES["sharegpt"], [{"id": "x", "conversations": said}] * 3)
    lmsys = [{"timestamp": i, "conversation": chat} for i in rows]
    _write_lines(folder / TRACES["lmsys"], lmsys)
    burstgpt = [f"{i},ChatGPT,{50 + i},{5 + i},{55 + 2 * i},API log" for i in rows]
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    (folder / TRACES["burstgpt"]).write_text("\n".join([header, *burstgpt]), encoding="utf-8")
    _write_lines(folder / TRACES["mooncake"], mooncake)
    _write_lines(folder / TRACES["autobench"], autobench)
    (folder / TRACES["azure"]).write_text(f"{azure}\n", encoding="utf-8")
    lines = [servetwin_line(40_000_000 * i, row) for i, row in enumerate(servetwin)]
    (folder / TRACES["servetwin"]).write_text("".join(lines), encoding="utf-8")


def _write_results(folder: Path) -> None:
    """Decision logs, and results of benchmarks."""
    simulate(["run", "base.yaml", "--decisions", "decisions.jsonl"])
    (folder / "other.jsonl").write_bytes((folder / "decisions.jsonl").read_bytes())
    for kind, name in (("base", "base.yaml"), ("blocks", "trace-mooncake.yaml")):
        built = build(load_scenario(folder / name))
        log = simulate_built(built, RunOptions())
        served = result_files.served_by(log, built.workload)
        if kind == "blocks":
            result_files.write_llmservingsim(served, built.workload, folder / "serving-sim")
            continue
        info = {
            "schedule_policy": "lpm",
            "page_size": 16,
            "max_total_num_tokens": 4096,
            "version": "0.5.23",
            "model_path": "org/Model-1B",
        }
        (folder / "sglang.json").write_text(result_files.sglang_bench(served, server_info=info))
        (folder / "vllm.json").write_text(result_files.vllm_bench(served))
        (folder / "aiperf.jsonl").write_text(result_files.aiperf(served))
        (folder / "guidellm.json").write_text(client_results.guidellm(served))
        (folder / "profile_export.json").write_text(client_results.genai_perf(served))
        (folder / "run_individual_responses.json").write_text(client_results.llmperf(served))
        (folder / "run_summary.json").write_text(client_results.llmperf_summary(2))
        (folder / "per_request.json").write_text(client_results.inference_perf(served))
        (folder / "log.txt").write_text(result_files.sglang_text_log(served))
        (folder / "log.jsonl").write_text(result_files.sglang_json_log(served))
        (folder / "dump.pkl").write_bytes(result_files.sglang_dump(served))
        columns = log.requests
        measured = MeasuredRun(
            columns.rid,
            columns.arrival_ns,
            columns.scheduled_ns,
            columns.first_token_ns,
            columns.finish_ns,
            columns.prompt_tokens,
            columns.output_tokens,
        )
        write_measured(measured, folder / "measured.jsonl")


def _write_logs(folder: Path) -> None:
    """The log of a real run, points of a profile, a profile, host times."""
    latency = ProfileLatency(load_profile("example/tiny-cpu", folder), overlaps=True)
    run = measured_run(load_scenario(folder / "served.yaml"), latency)
    write_run_log(folder / "run.jsonl", run.meta, [*run.steps, *run.requests])
    rng = np.random.default_rng(0)
    points = []
    for rows in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24):
        for tokens in (0, 8 + rows, 80 + rows, 200 + 9 * rows):
            decode = 0 if tokens > 200 else rows
            mode = "decode" if not tokens else "mixed" if decode else "extend"
            prefill = [["", 0, tokens]] if tokens else []
            context = tokens + (40 + 9 * rows) * decode
            points.append(
                {
                    "kind": "point",
                    "mode": mode,
                    "prefill": prefill,
                    "n_decode": decode,
                    "ctx": context,
                    "forward_ns": int(
                        4e6 + 3e4 * tokens + 2e5 * rows + 100 * context + rng.integers(10_000)
                    ),
                    "repeats": 3,
                    "plan_ns": 1e5,
                    "launch_ns": 2e5,
                    "read_back_ns": 1e4,
                }
            )
    write_run_log(
        folder / "points.jsonl", {"source": "profile", "fingerprint": {"device": "x"}}, points
    )
    text = shipped_profiles()["example/tiny-cpu"].read_text(encoding="utf-8")
    (folder / "profile.json").write_text(text, encoding="utf-8")
    times = {
        "format": "servetwin-host-times",
        "version": 1,
        "host_s": 1e-3,
        "host_per_request_s": 1e-5,
        "fit": {},
    }
    (folder / "host.json").write_text(json.dumps(times), encoding="utf-8")


def _write_tables(folder: Path) -> None:
    header = (
        "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,"
        "tensor_parallel"
    )
    points = [(512, 1), (128, 1), (2048, 1), (512, 2), (512, 8)]
    rows = [f"llama2-70b,h100-80gb,{p},{b},128,{p * b / 10},{20 + b},1,4" for p, b in points]
    (folder / "tables").mkdir()
    (folder / "tables/perf_model.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
    config = {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "intermediate_size": 3072,
        "moe_intermediate_size": 256,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config), encoding="utf-8")
    lines = ["t,running,waiting", *(f"{i / 10},{i % 4},{i % 3}" for i in range(20))]
    (folder / "timeseries.csv").write_text("\n".join(lines), encoding="utf-8")


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def stored_point(content: bytes, rng: Random) -> bytes:
    """A point of a sweep whose digest is right, so that its content is read."""
    point = mutated_tree(json.loads(content), rng)
    if isinstance(point, dict):
        point.pop("digest", None)
        try:
            point = {"digest": digest_of(point), **point}
        except ValueError:
            point = {"digest": "", **point}
    return json.dumps(point).encode()


def parquet(content: bytes, rng: Random) -> bytes:
    """A table of requests with a column of another type, or another column."""
    read = pq.read_table(io.BytesIO(content))
    place = rng.randrange(read.num_columns)
    name, value = read.column_names[place], rng.choice(VALUES)
    try:
        column = pa.array([value] * len(read))
    except (pa.ArrowException, OverflowError, UnicodeError):
        column = pa.array([None] * len(read))
    kept = read.remove_column(place)
    made = kept if rng.random() < 0.2 else kept.append_column(name, column)
    try:
        return _packed(made)
    except pa.ArrowException:
        return _packed(kept)


def _packed(made: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(made, out)
    return out.getvalue()


RUN_FILES: Mapping[str, Changed] = {
    "summary.json": json_file,
    "scenario.json": json_file,
    "timeline.csv": table,
    "requests.parquet": parquet,
}
# By format: the path that is imported, the file that is changed, and how.
RESULTS: Mapping[str, tuple[str, str, Changed]] = {
    "sglang-bench": ("sglang.json", "sglang.json", json_file),
    "vllm-bench": ("vllm.json", "vllm.json", json_file),
    "aiperf": ("aiperf.jsonl", "aiperf.jsonl", json_lines),
    "guidellm": ("guidellm.json", "guidellm.json", json_file),
    "genai-perf": ("profile_export.json", "profile_export.json", json_file),
    "llmperf": ("run_individual_responses.json", "run_individual_responses.json", json_file),
    "llmperf summary": ("run_individual_responses.json", "run_summary.json", json_file),
    "inference-perf": ("per_request.json", "per_request.json", json_file),
    "sglang-log": ("log.txt", "log.txt", mutated_bytes),
    "sglang-log json": ("log.jsonl", "log.jsonl", mutated_bytes),
    "sglang-dump": ("dump.pkl", "dump.pkl", mutated_bytes),
    "llmservingsim": ("serving-sim", "serving-sim/requests.jsonl", json_lines),
}
