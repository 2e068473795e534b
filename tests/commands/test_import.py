"""`simulate import` turns results into a folder that can be simulated at once."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import sim.commands.import_results
from sim.core.errors import InputError
from sim.families import RESULT_FORMATS
from sim.runlog.run_log_file import read_measured
from sim.scenario.load import load_scenario
from sim.workload.kinds.build import build_workload
from tests.support.result_files import ServedRequest, sglang_bench, sglang_text_log, vllm_bench

SECOND = 1_000_000_000
REPOSITORY = Path(__file__).parents[2]


def served(place, *, prompt=None, output=5):
    """Requests 0.5 s apart. The first token comes after 0.25 s, each further one after 0.1 s."""
    start = place * SECOND // 2
    first = start + SECOND // 4
    tokens = range(1000 * place, 1000 * place + 40) if prompt is None else prompt
    finish = first + (output - 1) * SECOND // 10
    return ServedRequest(
        f"r{place}", start, start, first, finish, tuple(tokens), tuple(range(output)), output
    )


@pytest.fixture
def results(folder):
    """results.json: three requests of a vLLM benchmark, the second of which failed early."""
    row = json.loads(vllm_bench([served(0), served(1), served(2)]))
    row["errors"][1], row["output_lens"][1] = "ClientTimeout", 0
    row["itls"][1] = row["itls"][1][:1]
    Path("results.json").write_text(json.dumps(row), encoding="utf-8")
    return row


def rows_of(text):
    """The table's last column, by its first."""
    lines = [line for line in text.splitlines() if line.strip()]
    return {line.split("  ")[0]: line.split()[-1] for line in lines}


def test_import_writes_what_simulates_at_once(simulate, results):
    """Three files; requests agree by name; the run needs no more than the folder."""
    ended = simulate("import", "results.json", "--out", "out")
    assert ended.code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "measured.jsonl.gz", "scenario.yaml", "workload.jsonl.gz",
    ]  # fmt: skip
    measured = read_measured(Path("out/measured.jsonl.gz"))
    assert measured.rid == ["0", "1", "2"]
    assert measured.arrival_ns.tolist() == [0, SECOND // 2, SECOND]
    assert measured.finish_ns.tolist() == [650_000_000, -1, 1_650_000_000]
    assert measured.output_tokens.tolist() == [5, 2, 5]
    ran = simulate("run", "out/scenario.yaml", "--format", "json", "--requests", "r.csv")
    assert ran.code == 0
    summary = json.loads(ran.out)
    assert (summary["completed"], summary["total_output_tokens"]) == (3, 12)
    assert [line.split(",")[0] for line in Path("r.csv").read_text("utf-8").splitlines()[1:]] == [
        "0", "1", "2",
    ]  # fmt: skip


def test_import_on_a_full_disk_has_no_folder(on_full_disk, results):
    """All of its files, or none."""
    ended = on_full_disk(400, "import", "results.json", "--out", "out")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(": cannot be written: File too large\n")
    assert not Path("out").exists()


def test_import_shows_what_was_measured_and_what_to_do_next(simulate, results):
    """A table on stdout; on stderr what was not told, and who failed."""
    ended = simulate("import", "results.json", "--out", "out")
    shown = rows_of(ended.out)
    assert shown["results"] == "vllm-bench"
    assert (shown["requests"], shown["failed"], shown["in the workload"]) == ("3", "1", "3")
    assert shown["prompt tokens, mean"] == "40.00"
    assert shown["shared prefixes, in blocks of 16"] == "known"
    assert (shown["TTFT, mean"], shown["TPOT, mean"]) == ("250.0", "100.0")
    assert shown["latency, mean"] == "650.0"
    assert "next: simulate run out/scenario.yaml\n" in ended.out
    assert "calibrate validate out/scenario.yaml out/measured.jsonl.gz\n" in ended.out
    notes = ended.err.splitlines()
    assert all(note.startswith("servetwin: ") for note in notes)
    [failed] = [note for note in notes if "failed" in note]
    assert failed.endswith(
        "failed, but in the workload with the tokens generated until then, 1: 1 (ClientTimeout)"
    )
    assert sum("PLACEHOLDER" in note for note in notes) == 2


def test_import_names_failed_requests_that_cannot_be_sent_again(simulate, results):
    """They are measured all the same; the workload goes without."""
    results["ttfts"][1], results["itls"][1] = 0.0, []
    Path("results.json").write_text(json.dumps(results), encoding="utf-8")
    ended = simulate("import", "results.json", "--out", "out")
    assert rows_of(ended.out)["in the workload"] == "2"
    assert (
        "failed, not in workload.jsonl.gz because their lengths are unknown, 1: 1 (ClientTimeout)"
        in ended.err
    )
    assert read_measured(Path("out/measured.jsonl.gz")).rid == ["0", "1", "2"]


def test_import_generates_exactly_the_measured_lengths(simulate, folder):
    """Of a server that stopped by itself, and of a prompt known by its tokens."""
    log = [served(0, output=7), served(1, output=3), served(2, prompt=range(40), output=4)]
    Path("server.log").write_text(sglang_text_log(log), encoding="utf-8")
    assert simulate("import", "server.log", "--out", "out").code == 0
    assert simulate("run", "out/scenario.yaml", "--requests", "r.csv").code == 0
    header, *rows = Path("r.csv").read_text("utf-8").splitlines()
    column = header.split(",").index("output_tokens")
    assert [int(row.split(",")[column]) for row in rows] == [7, 3, 4]
    loaded = load_scenario("out/scenario.yaml")
    workload = build_workload(loaded.scenario.workload, seed=0, base_dir=loaded.base_dir)
    first, _, third = (request.spec.prompt.token_ids() for request in workload.arrivals())
    assert np.array_equal(first, third)


def test_import_takes_all_but_traffic_from_a_template(simulate, results, scenario_with):
    """Also files it names, wherever the folder is; settings that differ are named."""
    Path("configs").mkdir()
    shape = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
             "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
             "vocab_size": 1000}  # fmt: skip
    Path("configs/tiny.json").write_text(json.dumps(shape), encoding="utf-8")
    fitted = (
        "fitted: {requests: 9, runs: 1, held_out: 9, concurrency: [1, 2], prompt_tokens: [8, 9],"
        f" output_tokens: [3, 4], ttft: 0.1, tpot: 0.1, settings: {'a' * 16}}}"
    )
    scenario_with(f"model: configs/tiny.json\n{fitted}\nsweep: {{scheduler.page_size: [16, 32]}}\n")
    ended = simulate("import", "results.json", "--out", "out", "--template", "study.yaml")
    assert ended.code == 0
    assert "PLACEHOLDER" not in ended.err
    made, template = load_scenario("out/scenario.yaml"), load_scenario("study.yaml")
    for section in ("latency", "scheduler", "slo", "seed", "fitted"):
        assert getattr(made.scenario, section) == getattr(template.scenario, section)
    assert made.scenario.fitted is not None
    assert made.scenario.sweep is None
    assert made.scenario.model == "../configs/tiny.json"
    assert made.scenario.workload.path == "workload.jsonl.gz"
    assert simulate("run", "out/scenario.yaml").code == 0


def test_import_takes_drafts_from_a_template(simulate, results, scenario_with):
    """A server that speculates needs to know how many drafts are accepted."""
    scenario_with("")
    template = yaml.safe_load(Path("study.yaml").read_text("utf-8"))
    drafts = {"method": "ngram", "num_speculative_tokens": 2}
    template["scheduler"] = {
        "family": "vllm", "num_gpu_blocks_override": 500, "speculative_config": drafts
    }  # fmt: skip
    template["acceptance"] = {"rate": 0.6}
    Path("template.yaml").write_text(yaml.safe_dump(template), encoding="utf-8")
    ended = simulate("import", "results.json", "--out", "out", "--template", "template.yaml")
    assert ended.code == 0, ended.err
    assert load_scenario("out/scenario.yaml").scenario.acceptance.rate == 0.6


def test_import_fills_in_what_the_results_tell(simulate, folder):
    """A model the simulator knows; settings that a scenario can have; the others as a comment."""
    info = {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct",
        "page_size": 64,
        "schedule_policy": "lpm",
        "chunked_prefill_size": 4096,
        "max_total_num_tokens": 64000,
        "radix_eviction_policy": "fifo",
        "version": "0.5.23",
    }
    row = json.loads(vllm_bench([served(0)])) | {"server_info": info, "dataset_name": "random"}
    del row["endpoint_type"], row["burstiness"]
    Path("b.jsonl").write_text(json.dumps(row), encoding="utf-8")
    ended = simulate("import", "b.jsonl", "--out", "out")
    assert rows_of(ended.out)["results"] == "sglang-bench"
    scenario = load_scenario("out/scenario.yaml").scenario
    assert scenario.name == "b"
    assert scenario.model == "llama-3.1-8b"
    scheduler = scenario.scheduler
    assert (scheduler.page_size, scheduler.schedule_policy) == (64, "lpm")
    assert (scheduler.chunked_prefill_size, scheduler.max_total_tokens) == (4096, 64000)
    text = Path("out/scenario.yaml").read_text("utf-8")
    assert "# In the results, but not simulated: radix_eviction_policy fifo." in text
    assert "version 0.5.23" in text.replace("\n# ", " ")
    assert text.count("PLACEHOLDER") == 1


@pytest.mark.parametrize("family", [vllm_bench, sglang_bench])
@pytest.mark.parametrize("output", [1, 5])
def test_import_has_room_for_the_longest_request(simulate, folder, family, output):
    """The default context is widened for it, and the pool holds everything."""
    long = served(0, prompt=range(200_000), output=output)
    Path("r.json").write_text(family([long]), encoding="utf-8")
    assert simulate("import", "r.json", "--out", "out").code == 0
    ran = simulate("run", "out/scenario.yaml", "--format", "json")
    assert json.loads(ran.out)["completed"] == 1


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.5.15", "SGLang 0.5.15: rules are those of 0.5.17, the nearest known version"),
        ("0.5.10.post1", ""),
        ("0.5.2", "SGLang 0.5.2: rules are those of 0.5.1, the nearest"),
        ("nightly", "SGLang nightly: is no version that is known; rules are those of 0.5.23"),
    ],
)
def test_import_names_the_version_whose_rules_are_taken(simulate, folder, version, said):
    """If it is another than the server's."""
    row = json.loads(vllm_bench([served(0)])) | {"server_info": {"version": version}}
    del row["endpoint_type"], row["burstiness"]
    (folder / "results.json").write_text(json.dumps({**row, "backend": "sglang"}))
    ended = simulate("import", "results.json", "--from", "sglang-bench", "--out", "out")
    assert ended.code == 0, ended.err
    assert said in ended.err
    assert bool(said) == ("rules are those of" in ended.err)


@pytest.mark.parametrize(
    ("model", "groups", "num_blocks"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", None, 5),
        ("openai/gpt-oss-120b", "model", 9),
        ("google/gemma-3-27b-it", "model", 29),
    ],
)
def test_import_knows_the_groups_of_a_model_with_windows(
    simulate, folder, model, groups, num_blocks
):
    """The placeholder of the pool has room in each group."""
    row = json.loads(vllm_bench([served(0)])) | {"model_id": model}
    (folder / "results.json").write_text(json.dumps(row))
    assert simulate("import", "results.json", "--out", "out").code == 0
    scheduler = yaml.safe_load(Path("out/scenario.yaml").read_text())["scheduler"]
    assert scheduler.get("kv_cache_groups") == groups
    assert scheduler["num_gpu_blocks_override"] == num_blocks
    assert simulate("run", "out/scenario.yaml").code == 0


def test_import_twice_gives_the_same_bytes(simulate, results, listing):
    """And replaces its own files, leaving others alone."""
    simulate("import", "results.json", "--out", "out")
    Path("out/mine.txt").write_text("keep", encoding="utf-8")
    before = listing()
    assert simulate("import", "results.json", "--out", "out").code == 0
    assert listing() == before


def test_import_of_a_real_run(simulate):
    """300 requests of a real vLLM, from its folder to a simulation."""
    source = REPOSITORY / "data" / "measured" / "vllm-0.19-rtxpro6000-llama-3.1-8b"
    ended = simulate("import", source, "--out", "out")
    shown = rows_of(ended.out)
    assert (shown["requests"], shown["failed"], shown["TTFT, mean"]) == ("300", "0", "7,097")
    assert (shown["TPOT, mean"], shown["latency, mean"]) == ("32.46", "28,201")
    stats = simulate("workload", "out/scenario.yaml", "--format", "json", "--block-size", 16)
    hits = json.loads(stats.out)
    assert (hits["num_requests"], round(hits["block_hit_pct"], 1)) == (300, 7.5)
    scenario = load_scenario("out/scenario.yaml").scenario
    scheduler = scenario.scheduler
    assert (scenario.model, scheduler.family) == ("llama-3.1-8b", "vllm")
    assert (scheduler.block_size, scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (
        16, 128, 2048,
    )  # fmt: skip
    ran = simulate("run", "out/scenario.yaml", "--format", "json")
    assert json.loads(ran.out)["completed"] == 300


def test_import_refuses_cleanly(refused_bare, results):
    """One line, nothing written."""
    assert refused_bare("import", "nowhere", "--out", "out").startswith("nowhere: cannot be read")
    assert refused_bare("import", "results.json", "--out", "a/b") == (
        "a/b: its folder a does not exist"
    )
    assert refused_bare("import", "results.json", "--out", "results.json") == (
        "results.json: is a file, expected a folder"
    )
    assert refused_bare("import", ".", "--out", ".").startswith("--out .: is the folder that is")
    wrong = refused_bare("import", "results.json", "--out", "out", "--from", "aiperf")
    assert wrong == "results.json:1: metadata: missing"
    template = refused_bare("import", "results.json", "--out", "o", "--template", "none.yaml")
    assert template == "none.yaml: no such file"
    line = refused_bare("import", "results.json", "--out", "out", "--line", "3")
    assert line == "results.json: --line 3: no run there"


@pytest.mark.parametrize("fails", ["write_workload", "write_measured", "write_text"])
def test_import_that_finds_no_room_writes_nothing(simulate, results, listing, monkeypatch, fails):
    """Neither into a new folder, nor over the files of an earlier import."""

    def find_no_room(*arguments):
        path = next(each for each in arguments if isinstance(each, Path))
        raise InputError(f"{path}: cannot be written: No space left on device")

    assert simulate("import", "results.json", "--out", "old").code == 0
    before = listing()
    monkeypatch.setattr(sim.commands.import_results, fails, find_no_room)
    for out in ("new", "old"):
        ended = simulate("import", "results.json", "--out", out)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"simulate: {out}/")
        assert ended.err.endswith("cannot be written: No space left on device\n")
        assert ended.err.count("/") == 1
        assert listing() == before


def test_import_refuses_a_run_without_lengths(refused_bare, results):
    """Nothing could be simulated."""
    empty = {key: [0] * 3 for key in ("input_lens", "output_lens", "ttfts")}
    more = {"itls": [[]] * 3, "errors": ["no"] * 3}
    Path("results.json").write_text(json.dumps({**results, **empty, **more}), encoding="utf-8")
    line = refused_bare("import", "results.json", "--out", "out")
    assert line == "results.json: no request with a prompt and an output of known length"


def test_import_refuses_a_policy_that_the_folder_cannot_find(refused_bare, results, scenario):
    """A module beside the template is not beside the new scenario."""
    text = Path(scenario).read_text("utf-8").replace("lpm", "mine:Mine")
    Path("mine.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    Path("study.yaml").write_text(text, encoding="utf-8")
    line = refused_bare("import", "results.json", "--out", "out", "--template", "study.yaml")
    assert "schedule_policy" in line


def test_import_document_names_every_format_and_option(simulate):
    """And every file that comes of it."""
    document = (REPOSITORY / "docs" / "how-to" / "import.md").read_text("utf-8")
    for name in (*RESULT_FORMATS, "workload.jsonl.gz", "measured.jsonl.gz", "scenario.yaml"):
        assert f"`{name}`" in document
    options = set(re.findall(r"--[a-z-]+", simulate("import", "--help").out)) - {"--help"}
    of_commands = {"--command", "--server", "--hardware", "--results", "--model", "--fleet"}
    assert options == {"--out", "--from", "--template", "--line", "--draw-arrivals"} | of_commands
    assert all(option in document for option in options)
