"""Good files of every kind, small ones, from which the hostile ones are made."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.logs import write_logs
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
from fuzz.scenarios import OTHERS, SCENARIOS
from fuzz.server_logs import write_server_logs
from fuzz.traces import write_traces
from sim.cli import main as simulate
from sim.commands.running.simulate import simulate_built
from sim.core.files import json_digest
from sim.des.run import RunOptions
from sim.runlog.run_log_file import MeasuredRun, write_measured
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from tests.support import client_results, result_files

Changed = Callable[[bytes, Random], bytes]


def write_files(folder: Path) -> None:
    """Write every single file that a case needs into a folder, the working directory."""
    for name, scenario in {**SCENARIOS, **OTHERS}.items():
        (folder / name).write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    trap = f"open({str(TRAP)!r}, 'w').close()\nclass Policy: pass\n"
    (folder / f"{MODULE}.py").write_text(trap, encoding="utf-8")
    counts = ({"rid": str(i), "accepted": [i % 4, 1, 0, 3]} for i in range(10))
    accepted = "".join(f"{json.dumps(row)}\n" for row in counts)
    (folder / "accepted.jsonl").write_text(accepted, encoding="utf-8")
    write_traces(folder)
    _write_results(folder)
    write_logs(folder)
    write_server_logs(folder)
    _write_tables(folder)
    _write_requests(folder)


def _write_requests(folder: Path) -> None:
    """What a playground is sent: links, a body, a whole request."""
    settings = {
        "workload.arrivals.rate_rps": "40",
        "scheduler.schedule_policy": "fcfs",
        "scheduler.chunked_prefill_size": "512",
        "replicas": "2",
    }
    of_vllm = {"scheduler.scheduling_policy": "fcfs", "scheduler.max_num_batched_tokens": "1024"}
    body = json.dumps({"settings": settings, "num_requests": 15})
    (folder / "link.txt").write_text(urlencode(settings), encoding="utf-8")
    (folder / "vllm-link.txt").write_text(urlencode(of_vllm), encoding="utf-8")
    (folder / "body.json").write_text(body, encoding="utf-8")
    lines = (
        "POST /PATH HTTP/1.1",
        "Host: HOST",
        "Origin: http://HOST",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        body,
    )
    (folder / "request.txt").write_bytes("\r\n".join(lines).encode())


def write_folders(folder: Path) -> None:
    """Write the folders of a run, of a sweep and of both searches, after `write_files`."""
    simulate(["run", "base.yaml", "--out", str(folder / "run")])
    simulate(["sweep", "sweep.yaml", "--out", str(folder / "sweep"), "--jobs", "1"])
    simulate(["tune", "tune.yaml", "--out", str(folder / "tune"), "--jobs", "1"])
    simulate(["plan", "plan.yaml", "--out", str(folder / "plan"), "--jobs", "1"])


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
        (folder / "summary.csv").write_text(client_results.aibrix(served))
        (folder / "agg.json").write_text(json.dumps(client_results.inferencex()))
        (folder / "log.txt").write_text(result_files.sglang_text_log(served))
        (folder / "log.jsonl").write_text(result_files.sglang_json_log(served))
        (folder / "export.jsonl").write_text(result_files.sglang_export(served))
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


def stored_point(content: bytes, rng: Random) -> bytes:
    """A point of a sweep whose digest is right, so that its content is read."""
    point = mutated_tree(json.loads(content), rng)
    if isinstance(point, dict):
        point.pop("digest", None)
        try:
            point = {"digest": json_digest(point), **point}
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
    "inferencex": ("agg.json", "agg.json", json_file),
    "aibrix": ("summary.csv", "summary.csv", table),
    "sglang-log": ("log.txt", "log.txt", mutated_bytes),
    "sglang-log json": ("log.jsonl", "log.jsonl", mutated_bytes),
    "sglang-export": ("export.jsonl", "export.jsonl", json_lines),
    "sglang-dump": ("dump.pkl", "dump.pkl", mutated_bytes),
    "llmservingsim": ("serving-sim", "serving-sim/requests.jsonl", json_lines),
}
