"""Writes the files of data/: how each row of the silicon table was measured.

    python -m silicon.import_facts FOLDER SRT_SLURM

FOLDER holds rows.csv.gz, recipes.csv.gz and baseline.csv.gz, which were put together from the
public history of SemiAnalysisAI/InferenceX (launch scripts, client) and of ai-dynamo/aiconfigurator
(the table, and the package's own estimates). docs/hardware.md says what each column is. Known
servers of rows with prefill and decode on different ones are in disaggregated.csv.gz. SRT_SLURM is
a clone of NVIDIA/srt-slurm, whose recipes have the flags of such servers with and without drafts.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import yaml

from silicon.facts import DISAGGREGATED, DISAGGREGATED_FILE, FACTS_FILE, SPECULATION

# Column of the facts: column of the recipes.
_FLAGS: Mapping[str, str] = {
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "max_running_requests": "max_running_requests",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "memory_share": "mem_fraction",
    "page_size": "page_or_block",
    "scheduler_recv_interval": "scheduler_recv_interval",
    "cuda_graph_max_bs": "cuda_graph_max_bs",
}
# Key of `latency.quantization`: argument of the package.
_FORMATS: Mapping[str, str] = {"gemm": "gemm_quant_mode", "moe": "moe_quant_mode"}
_KEPT = (
    "id", "measurement", "canonical", "backend", "mode", "system", "arch_class", "precision",
    "isl", "osl", "concurrency",
)  # fmt: skip


def facts(folder: Path) -> pd.DataFrame:
    """One line for each SGLang and vLLM row of the table."""
    rows = pd.read_csv(folder / "rows.csv.gz", low_memory=False)
    recipes = pd.read_csv(folder / "recipes.csv.gz", low_memory=False).set_index("recipe_id")
    baseline = pd.read_csv(folder / "baseline.csv.gz", low_memory=False).set_index("id")
    table = rows[list(_KEPT)].copy()
    table["split"] = rows["split_by_measurement"].replace("dev", "development")
    table["reason"] = [
        _reason(mode, str(confidence), spec)
        for mode, confidence, spec in zip(
            rows["mode"], rows["recipe_confidence"], rows["spec"], strict=True
        )
    ]
    used = recipes.reindex(rows["recipe_id"]).reset_index()
    table["version"] = used["version"].astype("string").str.strip("()")
    table["client"] = [_client(str(client)) for client in used["client"]]
    table["prefix_cache"] = (used["prefix_cache"] != "off").map({True: "on", False: "off"})
    overlap = used["overlap_or_async_scheduling"].astype("string")
    table["async_scheduling"] = overlap.str.startswith("async on").fillna(value=False)
    table["num_drafts"] = used["speculative"].astype("string").str.extract(r"EAGLE steps=(\d+)")[0]
    table["drafts_overlap"] = overlap.str.endswith("(overlap)").map({True: "yes"})
    for column, source in _FLAGS.items():
        table[column] = [
            _at(value, concurrency)
            for value, concurrency in zip(used[source], rows["concurrency"], strict=True)
        ]
    flags = used["other_flags"].astype("string")
    table["tokenizer_worker_num"] = flags.str.extract(r"tokenizer-worker-num=(\d+)")[0]
    arguments = [
        _arguments(text) for text in baseline["corrected_args"].reindex(rows["id"]).fillna("")
    ]
    table["model"] = [given.get("model_path") for given in arguments]
    sizes = {"tp": "attn_tp", "dp": "attn_dp", "moe_tp": "moe_tp", "moe_ep": "moe_ep"}
    for column, source in sizes.items():
        table[column] = rows[source]
    for column, source in _FORMATS.items():
        table[column] = [given.get(source) for given in arguments]
    # With `auto` both engines keep KV in the model's 16 bits; the package would follow the weights.
    in_8_bits = used["kv_cache_dtype"].astype("string").str.startswith("fp8").fillna(value=False)
    table["kv_cache"] = in_8_bits.map({True: "fp8", False: "bfloat16"})
    for column in ("ttft_ms", "tpot_ms"):
        table[f"package_{column}"] = baseline[f"corrected_{column}"].reindex(rows["id"]).to_numpy()
    return table


# The checkpoints of disaggregated servers: the package's model with these weights.
_CHECKPOINTS: Mapping[str, str] = {
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-R1-0528-NVFP4-v2": "nvidia/DeepSeek-V3.1-NVFP4",
    "deepseek-r1-fp4": "nvidia/DeepSeek-V3.1-NVFP4",
    "nvidia/Kimi-K2.5-NVFP4": "nvidia/Kimi-K2.5-NVFP4",
}


def disaggregated(folder: Path, repository: Path) -> pd.DataFrame:
    """One line for each measured row whose prefill and decode servers, and their flags, are known.

    Columns: id; model; front_ends, processes of Dynamo's front end; prefill and decode, JSON of the
    number of servers (`replicas`) and of their flags; speculated: yes, no or unknown. If it is
    unknown, these flags are those without drafts, and prefill_with_drafts and decode_with_drafts
    those that the recipe of the same servers with drafts changes.
    """
    rows = pd.read_csv(folder / "rows.csv.gz", low_memory=False)
    recipes = pd.read_csv(folder / "recipes.csv.gz", low_memory=False).set_index("recipe_id")
    used = recipes.reindex(rows["recipe_id"]).reset_index()
    known = used[["disagg", "prefill_flags", "decode_flags"]].notna().all(axis=1)
    wanted = known & (rows["canonical"] == "yes")
    table, used = rows[wanted][["id"]].copy(), used[wanted]
    table["model"] = [_CHECKPOINTS[name] for name in used["checkpoint_run"]]
    number = used["router"].astype("string").str.extract(r"frontend x(\d+)")[0]
    table["front_ends"] = number.fillna("1")
    for role in ("prefill", "decode"):
        table[role] = [
            json.dumps({"replicas": json.loads(servers)[role]["num-worker"], **json.loads(flags)})
            for servers, flags in zip(used["disagg"], used[f"{role}_flags"], strict=True)
        ]
    table["speculated"] = rows[wanted]["spec"].map(_SPECULATED)
    changes = [
        _drafts_of(repository, file, commit) if speculated == "unknown" else {}
        for speculated, file, commit in zip(
            table["speculated"], used["recipe_files"], used["recipe_commit"], strict=True
        )
    ]
    for role in ("prefill", "decode"):
        table[f"{role}_with_drafts"] = [
            json.dumps(change[role]) if change else None for change in changes
        ]
    return table


_SPECULATED: Mapping[str, str] = {"none": "no", "mtp": "yes", "ambiguous": "unknown"}
# The first commit with recipes of H200 servers with drafts, of the same week.
_FIRST_WITH_DRAFTS = "35d6fb1d50ec"


def _drafts_of(repository: Path, file: str, commit: str) -> dict[str, dict[str, object]]:
    """What the recipe of the same servers with drafts changes, by role.

    Flags that set nothing but names of files and lengths of contexts are left out.
    """
    found = re.search(r"@([0-9a-f]+)", commit)
    commit = found[1] if found else commit
    plain = _recipe(repository, commit, file)
    named = file.replace("/stp/", "/mtp/").replace("_stp_", "_mtp_")
    for name in (named, named.replace(".yaml", "-mtp.yaml")):
        for at in (commit, _FIRST_WITH_DRAFTS):
            drafts = _recipe(repository, at, name) if name != file else {}
            if drafts:
                return {
                    role: {
                        key: value
                        for key, value in drafts[role].items()
                        if key not in _NO_MATTER and plain[role].get(key) != value
                    }
                    for role in ("prefill", "decode")
                }
    raise ValueError(f"{file}@{commit}: no recipe with drafts")


_NO_MATTER = ("context-length", "watchdog-timeout", "speculative-eagle-topk")


def _recipe(repository: Path, commit: str, file: str) -> dict[str, dict[str, object]]:
    """The flags of a recipe by role; empty if there is no such file."""
    command = ["git", "-C", str(repository), "show", f"{commit}:{file}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if shown.returncode:
        return {}
    flags: dict[str, dict[str, object]] = yaml.safe_load(shown.stdout)["backend"]["sglang_config"]
    return flags


def _reason(mode: str, confidence: str, spec: str) -> str | None:
    """Why the row cannot be judged; None if it can."""
    if mode != "agg":
        return DISAGGREGATED
    if "mislabelled" in confidence:
        return "mislabelled: a run of several servers"
    if spec != "none":
        return SPECULATION
    return None


def _client(text: str) -> str:
    if "InferenceX" not in text:
        return "fixed"
    if "chat template" in text:
        return "inferencex-chat"
    return "inferencex" if "warm-up 2*conc" in text else "inferencex-1-warmup"


def _at(value: object, concurrency: float) -> float | None:
    """A flag at one concurrency: `10 @conc [4, 8]; 30 @conc [16]` is 10 at 8."""
    text = str(value)
    if "=CONC" in text:
        return concurrency
    for part in text.split(";"):
        number = re.match(r"\s*(\d+(?:\.\d+)?)", part)
        _, is_limited, rest = part.partition("@conc [")
        only_at = rest.rpartition("]")[0].split(",")
        if number and (not is_limited or concurrency in map(float, only_at)):
            return float(number[1])
    return None


def _arguments(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(";") if part)


def _write(table: pd.DataFrame, file: Path) -> None:
    table.to_csv(file, index=False, compression={"method": "gzip", "mtime": 0})


if __name__ == "__main__":
    _write(facts(Path(sys.argv[1])), FACTS_FILE)
    _write(disaggregated(Path(sys.argv[1]), Path(sys.argv[2])), DISAGGREGATED_FILE)
