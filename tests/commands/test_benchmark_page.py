"""What the page about benchmarks says is so."""

import json
import re
import shlex
from pathlib import Path

from tests.support.serve import LINEAR_LATENCY

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "benchmark.md").read_text("utf-8")
HEAD = f"name: page\n{LINEAR_LATENCY}scheduler: {{max_total_tokens: 200000}}\n"


def scenario(tmp_path, *more):
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "page.yaml"
    path.write_text(HEAD + block, encoding="utf-8")
    return [str(path), *more]


def test_page_tells_the_totals_that_the_client_prints(simulate, tmp_path):
    """249,831 and 252,662 tokens."""
    stats = json.loads(simulate("workload", *scenario(tmp_path), "--format", "json").out)
    totals = [stats[key]["total"] for key in ("input_tokens", "output_tokens")]
    assert totals == [249_831, 252_662]
    assert all(f"{total:,}" in PAGE for total in totals)


def test_page_shows_what_the_run_prints(simulate, tmp_path):
    """Below the usual summary, and in JSON."""
    text = simulate("run", *scenario(tmp_path)).out
    assert "============ Serving Benchmark Result ============" in text
    shown = json.loads(simulate("run", *scenario(tmp_path, "--format", "json")).out)
    figures = shown["client_figures"]["figures"]
    assert figures["Serving Benchmark Result"]["Successful requests"] == 500
    # Mean over requests: short answers count as much as long ones, so it is not the mean gap.
    assert (
        figures["Time per Output Token (excl. 1st token)"]["Mean TPOT (ms)"]
        == shown["mean_tpot_ms"]
    )
    assert shown["mean_tpot_ms"] != shown["mean_itl_ms"]


def test_short_benchmark_has_the_burst_in_its_mean(simulate, tmp_path):
    """With as many requests as places, all of them are the first; with ten times as many, few."""

    def mean_ttft_ms(num_prompts):
        more = ("--set", f"workload.num_prompts={num_prompts}", "--format", "json")
        return json.loads(simulate("run", *scenario(tmp_path, *more)).out)["mean_ttft_ms"]

    assert mean_ttft_ms(64) > 3 * mean_ttft_ms(640)


def test_page_shows_commands_that_become_a_scenario(simulate, tmp_path, monkeypatch):
    """With what stderr says of them."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```\n(simulate import.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    words = shlex.split(block.replace("\\\n", " ").splitlines()[0])
    done = simulate(*words[1:])
    assert "chunked_prefill_size 8192 is SGLang's default on h100_sxm" in done.err
    assert (tmp_path / "mine" / "scenario.yaml").exists()
