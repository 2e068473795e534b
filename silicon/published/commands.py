"""Published results, beside what `simulate import` and `simulate run` make of their commands.

Nothing is fitted to these results or chosen on them. Two facts are taken from the publication where
the commands do not have them: the GPU, and SGLang's version, by which the client's default seed and
the preset of the host are chosen (`_by_version`).
"""

import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.cli import main as simulate
from sim.core.packed import numbered_lines

_DATA = Path(__file__).parents[2] / "data/published"
SOURCES = ("sglang-cookbook", "datacrunch-h200")
_GPUS = {"B200": "b200_sxm", "H200": "h200_sxm", "H100": "h100_sxm", "A100": "a100_sxm"}
# Models whose shape is that of another one, which is known here. The pages of GLM-5 and GLM-5.1
# name the models in fp8, their commands the models in bf16, which these GPUs cannot hold.
_SAME_SHAPE = {
    "zai-org/GLM-4.6": "zai-org/GLM-4.5",
    "moonshotai/Kimi-K2.6": "moonshotai/Kimi-K2.5",
    "Qwen/Qwen3-Coder-Next": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "zai-org/GLM-5": "zai-org/GLM-5-FP8",
    "zai-org/GLM-5.1": "zai-org/GLM-5-FP8",
    "Meta-Llama/Llama-3.1-70B": "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B-Instruct": "meta-llama/Llama-3.1-405B",
}
# The means that have intervals.
_INTERVALS = {"TTFT": "mean_ttft_ms", "TPOT": "mean_tpot_ms"}
# The metrics of each figure, of which the first counts that was published. Of TTFT the median, as
# the first request met a cold server.
_FIGURES = {
    "TTFT": ("median_ttft_ms",),
    "TPOT": ("mean_tpot_ms", "median_itl_ms"),
    "tokens/s": ("output_throughput",),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A published result and its simulation.

    Attributes:
        published: the line of the file.
        simulated: the summary of `simulate run --format json`; None if it was refused.
        refusal: why, in the words of the command.
    """

    published: Mapping[str, Any]
    simulated: Mapping[str, Any] | None
    refusal: str = ""

    @property
    def confidence(self) -> Mapping[str, Any]:
        """What the answer said of itself; empty if there is none."""
        return (self.simulated or {}).get("confidence") or {}

    @property
    def is_measured(self) -> bool:
        """Whether the step times rest on measured operators, and not on data sheets alone."""
        return "operators" in str(self.confidence.get("basis"))

    def figures(self) -> Iterator[tuple[str, float | None, float | None]]:
        """Each figure's name, published value, and error in %, as far as they are known."""
        measured, simulated = self.published["result"], self.simulated or {}
        for name, metrics in _FIGURES.items():
            metric = next(filter(measured.get, metrics), metrics[-1])
            value, ours = measured.get(metric), simulated.get(metric)
            yield name, value, 100 * (ours / value - 1) if value and ours else None


def published(source: str) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """The results of a source, in the order of its file, and whether an earlier one is the same."""
    seen: list[Mapping[str, Any]] = []
    for _, line in numbered_lines(_DATA / f"{source}.jsonl.gz"):
        yield line, line["result"] in seen
        seen.append(line["result"])


def outcome_of(line: Mapping[str, Any], *, is_copy: bool) -> Outcome:
    """Import the result's two commands and simulate them."""
    if is_copy:
        return Outcome(line, None, "a copy of another page's result")
    gpu = _gpu(str(line["env"].get("hardware") or ""))
    if gpu is None:
        return Outcome(line, None, "GPU not named, or of AMD")
    if not line["server_cmd"] or not line["bench_cmd"]:
        return Outcome(line, None, "no command")
    server, client, changes = _by_version(line)
    with tempfile.TemporaryDirectory() as folder:
        commands = ["--command", client, "--server", server, "--hardware", gpu]
        code, _, err = _run(["import", *commands, "-o", f"{folder}/run"])
        if code == 0:
            scenario = f"{folder}/run/scenario.yaml"
            code, out, err = _run(_command(scenario, changes))
            if "is simulated with version" in err:  # what the older versions do not have here
                code, out, err = _run(_command(scenario, changes[1:]))
    if code != 0:
        return Outcome(line, None, err.strip().splitlines()[-1])
    return Outcome(line, json.loads(out))


def _command(scenario: str, changes: Sequence[str]) -> list[str]:
    sets = [part for change in changes for part in ("--set", change)]
    return ["run", scenario, "--format", "json", *sets]


def _run(argv: Sequence[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = simulate(argv)
    return code, out.getvalue(), err.getvalue()


def _gpu(hardware: str) -> str | None:
    # Pages that name several GPUs show the results of the first.
    first = hardware.partition(",")[0]
    return next((name for gpu, name in _GPUS.items() if gpu in first), None)


def _by_version(line: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """The two commands and changes of the scenario, for the version that the publication names."""
    server, client = line["server_cmd"].replace("```", ""), line["bench_cmd"]
    # A slip of one page, which repeats the words of the server's command.
    client = client.replace("sglang serve --backend", "python -m sglang.bench_serving --backend")
    words = [_SAME_SHAPE.get(word, word) for word in server.split()]
    digits = str(line["env"].get("sglang_version") or "").split(".post")[0].rstrip("+").split(".")
    if not all(part.isdigit() for part in digits):
        return " ".join(words), client, []
    version = tuple(int(part) for part in digits)
    changes = []
    if version < (0, 5, 10):
        # The client's seed was 1 by default then, and the rules of the scheduler were others.
        client += "" if "--seed" in client else " --seed 1"
        changes.append(f"scheduler.version={'0.5.9' if version >= (0, 5, 3) else '0.5.1'}")
        known = [(0, 5, 1), (0, 5, 3), (0, 5, 5), (0, 5, 9)]
        host = max((host for host in known if host <= version), default=known[0])
        # Several loads were sent to each server, so that all but the first found it warm.
        name = ".".join(map(str, host))
        changes.append(f"host={{preset: sglang-{name}, cold_start_s: 0}}")
    return " ".join(words), client, changes


def board(outcomes: Sequence[Outcome]) -> str:
    """The table of a source: totals, each result, and why others are not simulated."""
    done = [outcome for outcome in outcomes if outcome.simulated is not None]
    titles = ["server", "load: requests of prompt/output tokens", "times"]
    titles += ["TTFT ms", "error %", "TPOT ms", "error %", "tokens/s", "error %"]
    rows = [f"| {' | '.join(titles)} |", "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    rows += [_row(outcome) for outcome in done]
    refused = Counter(_reason(outcome.refusal) for outcome in outcomes if not outcome.simulated)
    others = "; ".join(f"{reason}: {count}" for reason, count in refused.most_common())
    totals = [_totals([one for one in done if one.is_measured], "with operators' times")]
    floors = [one for one in done if not one.is_measured]
    totals += [_totals(floors, "with a floor")] if floors else []
    text = "\n\n".join(totals) + "\n\n" + "\n".join(rows)
    if not others:
        return text
    return f"{text}\n\n{len(outcomes) - len(done)} of {len(outcomes)} are not simulated: {others}."


def _reason(refusal: str) -> str:
    """The part of a refusal that others share."""
    for word, reason in (
        ("--dataset-name image", "requests with images"),
        ("--dataset-name sharegpt", "ShareGPT's lengths, which the command does not have"),
        ("unknown model", "models of an unknown shape"),
        ("none of the known clients", "another client"),
        ("diffusion", "diffusion models"),
    ):
        if word in refusal:
            return reason
    return refusal.removeprefix("simulate: ").replace("|", "/")


def _row(outcome: Outcome) -> str:
    line, measured = outcome.published, outcome.published["result"]
    words, env = line["server_cmd"].split(), line["env"]
    model = _flag(words, "--model", "--model-path").split("/")[-1]
    gpu = next(name for name in _GPUS if name in env["hardware"])
    tp = _flag(words, "--tp", "--tp-size", "--tensor-parallel-size") or "1"
    where = f"{model}, {gpu}, TP {tp}, {env.get('sglang_version') or 'no version'}"
    at_a_time = measured.get("max_concurrency")
    load = f"{at_a_time} at a time" if at_a_time else f"{measured['request_rate']}/s"
    num = measured["completed"]
    prompt, output = (measured[f"total_{side}_tokens"] / num for side in ("input", "output"))
    cells = [where, f"{load}, {num:,} of {prompt:,.0f}/{output:,.0f}"]
    cells.append("operators" if outcome.is_measured else "a floor")
    for _, value, error_pct in outcome.figures():
        cells.append(f"{value:,.{0 if value >= 100 else 1}f}" if value else "-")
        cells.append("" if error_pct is None else f"{error_pct:+.0f}")
    return "| " + " | ".join(cells) + " |"


def _flag(words: Sequence[str], *names: str) -> str:
    """The value of the first of these flags in a command; empty: it has none."""
    return next((words[at + 1] for at, word in enumerate(words) if word in names), "")


def _totals(outcomes: Sequence[Outcome], kind: str) -> str:
    """Median errors, and how many measured means lie in the intervals of their answers."""
    errors: dict[str, list[float]] = {name: [] for name in _FIGURES}
    inside: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for outcome in outcomes:
        for name, _, error_pct in outcome.figures():
            if error_pct is not None:
                errors[name].append(abs(error_pct))
        for name, metric in _INTERVALS.items():
            value = outcome.published["result"].get(metric)
            if value and (interval := outcome.confidence.get(metric)):
                judged[name] += 1
                inside[name] += interval["low"] <= value <= interval["high"]
    medians = ", ".join(f"{name} {np.median(found):.1f} %" for name, found in errors.items())
    text = f"{len(outcomes)} results {kind}. Median error: {medians}"
    covered = ", ".join(f"{name} {inside[name]} of {judged[name]}" for name in judged)
    if not covered:
        return f"{text}."
    return f"{text}. Measured means within the 90 % interval of the answer: {covered}."
