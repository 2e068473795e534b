"""`simulate import RESULT`: a scenario from an aggregate of InferenceX, once InferenceMAX.

InferenceX (SemiAnalysisAI/InferenceX at 843c6254f, `utils/process_result.py`) writes one JSON
object for a server under one concurrency, `agg_NAME.json`: GPU, engine, model, parallelism and
lengths, and means and percentiles in seconds. `agg_bmk.json` is a list of such objects. They have
no requests, so the scenario is made of the two command lines that InferenceX's scripts ran
(`benchmarks/`), as far as the results say which.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from shlex import join

from sim.commands.import_commands import import_command_lines
from sim.commands.output import print_line
from sim.core.errors import InputError, shorten
from sim.core.units import NS_PER_MS
from sim.tables.table import aligned, number
from sim.workload.results.model import JsonNode, read_node

_SCRIPTS = (
    "InferenceX's results do not say with which flags a server was launched: all that are not named"
    " here are the engine's defaults. Its scripts send ten requests for each place, of 80 to 100 %"
    " of the lengths, after two for each place as a warm-up."
)
_SYSTEMS = {
    "h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm",
    "gb200": "gb200", "gb300": "gb300", "rtx6000pro": "rtx_pro_6000_server",
}  # fmt: skip
_WORD = re.compile(r"[\w./:@+-]{1,200}", re.ASCII)
# Parts of a server's parallelism that no scenario has.
_NOT_SIMULATED = ("dcp_size", "pcp_size")
_SHOWN = (
    "mean_ttft", "median_ttft", "p99_ttft", "mean_tpot", "median_tpot", "p99_tpot", "mean_itl",
    "mean_e2el",
)  # fmt: skip
_RATES = ("tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu")


def import_inferencex(source: Path, line: int | None, out: Path) -> None:
    """Write the scenario, and print what was measured.

    Raises InputError: the file is bad, has several results and none is chosen, or is of a server
    that is not simulated.
    """
    row = _chosen(read_node(source), line)
    server, client, system = _server(row), _client(row), _system(row)
    measured = dict(_measured(row))
    values = ", ".join(f"{name} {value}" for name, value in measured.items())
    said = {key: row[key].value for key in ("hw", "framework", "precision", "image")}
    facts = ", ".join(f"{key} {value}" for key, value in said.items() if value)
    comments = (f"From {source.name}: {facts}.", f"Measured: {values}.", _SCRIPTS)
    try:
        import_command_lines(client, [server], system, out, comments)
    except InputError as error:
        reason = str(error)
        if not reason.startswith("--server: "):
            raise
        raise InputError(f"{source}: {reason.removeprefix('--server: ')}") from None
    print_line("")
    for text in aligned([["measured", ""], *map(list, measured.items())], gap=2, right={1}):
        print_line(text)


def _chosen(document: JsonNode, line: int | None) -> JsonNode:
    rows = list(document.items()) if isinstance(document.value, list) else [document]
    if line is None and len(rows) > 1:
        raise document.error(f"holds {len(rows)} results: say which with --line N")
    if not 0 < (line or 1) <= len(rows):
        raise document.error(f"--line {line}: it has {len(rows)} results")
    return rows[(line or 1) - 1]


def _server(row: JsonNode) -> str:
    framework = _word(row["framework"])
    if framework not in {"vllm", "sglang"}:
        raise row["framework"].error(f"{shorten(framework)}: only vllm and sglang are simulated")
    if row["is_multinode"].value is True or row["disagg"].value is True:
        raise row["disagg"].error("prefill and decode servers: import their command lines")
    if (drafts := row["spec_decoding"].text()) not in {"", "none"}:
        reason = f"{shorten(repr(drafts)[1:-1])}: how many tokens are drafted is not in the results"
        raise row["spec_decoding"].error(f"{reason}: import the command lines")
    for key in _NOT_SIMULATED:
        if _count(row[key], missing=1) > 1:
            raise row[key].error("is above 1, which is not simulated")
    tp, ep = _count(row["tp"]), _count(row["ep"], missing=1)
    with_ranks = row["dp_attention"].value in (True, "true")
    flags: list[object] = ["--pipeline-parallel-size", _count(row["pp"], missing=1)]
    if framework == "sglang":
        flags += ["--tp-size", tp, "--ep-size", ep]
        flags += ["--enable-dp-attention", "--dp-size", tp] if with_ranks else []
        program = ["python", "-m", "sglang.launch_server", "--model-path"]
    else:
        flags += ["--tensor-parallel-size", 1 if with_ranks else tp]
        flags += ["--data-parallel-size", tp] if with_ranks else []
        flags += ["--enable-expert-parallel"] if ep > 1 else []
        program = ["vllm", "serve"]
    image = row["image"].text()
    container = ["docker", "run", image] if _WORD.fullmatch(image) else []
    return join([*container, *program, _word(row["model"]), *map(str, flags)])


def _client(row: JsonNode) -> str:
    """The command line of the client, as InferenceX's scripts have it."""
    num_places = _count(row["conc"])
    flags = {
        "dataset-name": "random",
        "random-input-len": _count(row["isl"]),
        "random-output-len": _count(row["osl"]),
        "random-range-ratio": 0.8,
        "num-prompts": 10 * num_places,
        "max-concurrency": num_places,
        "request-rate": "inf",
        "num-warmups": 2 * num_places,
    }
    return join(
        ["python3", "benchmark_serving.py", *(f"--{key}={value}" for key, value in flags.items())]
    )


def _system(row: JsonNode) -> str:
    """The GPU, as `latency.system` has it; the rest of the name is the cluster's."""
    name = _word(row["hw"]).removeprefix("cluster:")
    found = _SYSTEMS.get(name.partition("-")[0])
    if found is None:
        raise row["hw"].error(f"{shorten(name)}: is none of the known GPUs: {', '.join(_SYSTEMS)}")
    return found


def _measured(row: JsonNode) -> Iterator[tuple[str, str]]:
    """Names with units, and values, of what was measured."""
    for key in _SHOWN:
        if (time_ns := row[key].time_ns()) is not None:
            yield f"{key}_ms", number(time_ns / NS_PER_MS)
    for key in _RATES:
        value = row[key].value
        if isinstance(value, int | Decimal):
            yield f"{key} (tokens/s)", number(float(value))


def _word(node: JsonNode) -> str:
    text = node.needed().text()
    if not _WORD.fullmatch(text):
        raise node.error("is no name")
    return text


def _count(node: JsonNode, missing: int | None = None) -> int:
    """A whole number above 0."""
    found = node.tokens() if missing is not None else node.needed().tokens()
    value = missing if found is None else found
    if not value:
        raise node.error("must be above 0")
    return value
