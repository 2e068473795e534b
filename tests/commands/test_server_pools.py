"""Server pools from the command line: what runs write, what is refused, and with which words."""

import csv
import json
from pathlib import Path

import pytest

from calibrate.cli import main as calibrate_main
from sim.runlog.run_log_file import read_decisions
from sim.scenario.load import load_scenario
from tests.support.disaggregated import DISAGGREGATED, TOGETHER
from tests.support.result_files import ServedRequest, vllm_bench

PREFILL_NUMBERS, DECODE_NUMBERS = {"0", "1", "2"}, {"3", "4", "5", "6"}

KEYS = "role, replicas, autoscale, model, hardware, latency, host, scheduler, router"
NAMES = "a pool's name must have 1 to 100 letters, digits, - and _ only"


def served(place):
    """Requests 0.5 s apart, of 40 tokens each, with five tokens in 0.65 s."""
    start_ns = place * 500_000_000
    tokens = tuple(range(1000 * place, 1000 * place + 40))
    return ServedRequest(
        f"r{place}", start_ns, start_ns, start_ns + 250_000_000, start_ns + 650_000_000, tokens,
        tuple(range(5)), 5,
    )  # fmt: skip


@pytest.fixture
def disaggregated(folder):
    Path("disaggregated.yaml").write_text(DISAGGREGATED, encoding="utf-8")
    return "disaggregated.yaml"


@pytest.fixture
def together(folder):
    Path("together.yaml").write_text(TOGETHER, encoding="utf-8")
    return "together.yaml"


def test_all_files_of_a_run_name_pools(simulate, disaggregated):
    """The summary, the table of requests, the trace, the page and the decision log."""
    files = ("--requests", "r.csv", "--perfetto", "p.json", "--decisions", "d.jsonl",
             "--timeline", "t.html", "--out", "out")  # fmt: skip
    ended = simulate("run", disaggregated, *files)
    assert (ended.code, ended.err) == (0, "")
    assert "decode   decode" in ended.out
    assert "2 x 2 ranks" in ended.out
    for words in ("wait for memory", "wait for prefill", "prefill", "transfer", "wait to decode"):
        assert f"\n{words}  " in ended.out
    assert "\nKV sent: " in ended.out

    rows = list(csv.DictReader(Path("r.csv").read_text("utf-8").splitlines()))
    assert {row["pool"] for row in rows} == {"decode"}
    assert {row["prefill_replica"] for row in rows} == PREFILL_NUMBERS
    assert {row["replica"] for row in rows} == DECODE_NUMBERS
    names = ("memory_wait_ms", "prefill_queue_ms", "prefill_ms", "transfer_ms", "decode_queue_ms")
    for row in rows:
        parts = sum(float(row[name]) for name in names)
        assert parts == pytest.approx(float(row["ttft_ms"]))
        assert row["sent_tokens"] == row["prompt_tokens"]

    events = json.loads(Path("p.json").read_text("utf-8"))["traceEvents"]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == [
        "replica 0: east (prefill)", "replica 1: east (prefill)", "replica 2: west (prefill)",
        *(f"replica {number}: decode" for number in range(3, 7)),
    ]  # fmt: skip
    spans = {event["name"] for event in events if event.get("cat") == "request"}
    assert {"queued", "prefill", "transfer", "wait to decode", "decode"} <= spans

    steps, requests = read_decisions(Path("d.jsonl"))
    places = {(line["replica"], line["pool"], line["role"]) for line in steps}
    assert places == {
        (0, "east", "prefill"), (1, "east", "prefill"), (2, "west", "prefill"),
        *((number, "decode", "decode") for number in range(3, 7)),
    }  # fmt: skip
    for line in requests:
        names = ("arrival", "allocated", "scheduled", "computed", "received", "finish")
        ordered = [line[f"{name}_ns"] for name in names]
        assert ordered == sorted(ordered)

    page = Path("t.html").read_text("utf-8")
    assert "80 requests" in page
    assert "on its way to the decode server" in page
    assert '"server 2: west (prefill)"' in page

    assert {path.name for path in Path("out").glob("timeline*.csv")} == {
        "timeline.csv", "timeline-east.csv", "timeline-west.csv", "timeline-decode.csv",
    }  # fmt: skip
    assert Path("out/plots/ttft_parts.png").exists()
    summary = json.loads(Path("out/summary.json").read_text("utf-8"))
    assert list(summary["pools"]) == ["east", "west", "decode"]


def test_page_of_a_run_shows_where_ttft_goes(simulate, disaggregated):
    """A figure of its own, one for each pool, and two tables."""
    assert simulate("run", disaggregated, "--out", "out").code == 0
    ended = simulate("report", "out")
    assert (ended.code, ended.err) == (0, "")
    page = Path("out/report/index.html").read_text("utf-8")
    for text in (
        "Where the time to first token goes",
        "What the servers of pool east do",
        "What the servers of pool decode do",
        "Server pools",
        "Parts of TTFT (ms)",
    ):
        assert text in page
    svgs = sorted(path.name for path in Path("out/report").glob("*.svg"))
    assert [name.partition("-")[2] for name in svgs] == [
        "ttft.svg", "ttft-parts.svg", "timeline.svg", "timeline-pool-1.svg", "timeline-pool-2.svg",
        "timeline-pool-3.svg",
    ]  # fmt: skip


def test_timeline_of_a_log_says_the_same(simulate, disaggregated):
    """`simulate timeline` of the decision log, also as a trace: a request is on two servers."""
    assert simulate("run", disaggregated, "--decisions", "d.jsonl").code == 0
    ended = simulate("timeline", "d.jsonl", "--perfetto", "p.json")
    assert (ended.code, ended.err) == (0, "")
    events = json.loads(Path("p.json").read_text("utf-8"))
    assert events["otherData"]["requests"] == 80
    begun = [event for event in events["traceEvents"]
             if event.get("cat") == "request" and event["ph"] == "b"]  # fmt: skip
    transfers = [event for event in begun if event["name"] == "transfer"]
    assert len(transfers) == 2 * 80
    assert {event["pid"] for event in transfers} == set(range(7))


def test_whole_servers_of_two_kinds_are_decided_again(simulate, together):
    """Each pool with its own settings; ranks are those of a replica again."""
    ranked = ("--set", "pools.old.latency={dp: 2}")
    assert simulate("run", together, *ranked, "--decisions", "d.jsonl").code == 0
    ended = simulate("compare", "d.jsonl", together, *ranked)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(" steps are decided the same again\n")
    changed = simulate("compare", "d.jsonl", together, *ranked,
                       "--set", "pools.new.scheduler.max_total_tokens=80000")  # fmt: skip
    assert changed.out.startswith("pool new, replica 0, step 0: free")
    without = simulate("compare", "d.jsonl", together, "--set", "pools=null")
    assert without.code == 2
    assert without.err == (
        "simulate: d.jsonl: has replica 0 in pool old, but the scenario has replica 0 in no pool\n"
    )


def test_validate_counts_servers_by_pool(simulate, disaggregated):
    ended = simulate("validate", disaggregated)
    assert ended.out == (
        "disaggregated.yaml: valid; 80 requests, 2 replicas in pool east, 1 replica in pool west,"
        " 2 replicas in pool decode\n"
    )


def test_jobs_do_not_change_a_run_with_pools(simulate, disaggregated):
    """It runs in one process, and says why."""
    alone, jobs = simulate("run", disaggregated), simulate("run", disaggregated, "--jobs", "2")
    assert jobs.out == alone.out
    assert (
        jobs.err == "servetwin: disaggregated.yaml: runs in one process: its servers are in pools\n"
    )


def test_the_playground_knows_no_pools(simulate, disaggregated):
    ended = simulate("play", disaggregated, "--no-open")
    assert ended.code == 2
    assert ended.err == "simulate: disaggregated.yaml:16: pools: does not go with the playground\n"


def test_serve_refuses_pools_that_grow(simulate, disaggregated):
    ended = simulate(
        "serve",
        disaggregated,
        "--set",
        "pools.decode.autoscale={rule: {kind: concurrency, target: 2}, max_replicas: 4}",
    )
    assert ended.code == 2
    reason = "does not go with simulate serve, whose number of servers is constant\n"
    assert ended.err.endswith(reason)


def test_decisions_of_prefill_and_decode_servers_are_not_replayed(simulate, disaggregated):
    """But two logs of them can be compared."""
    assert simulate("run", disaggregated, "--decisions", "d.jsonl").code == 0
    ended = simulate("compare", "d.jsonl", disaggregated)
    assert ended.code == 2
    assert ended.err == (
        "simulate: disaggregated.yaml:16: pools: cannot be replayed: the steps of prefill and"
        " decode servers depend on each other\n"
    )
    assert simulate("compare", "d.jsonl", "d.jsonl").out.endswith("steps are the same\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("pools={p: {role: prefill}}", "pools.p.role: prefill needs a pool of role decode"),
        ("pools={d: {role: decode}}", "pools.d.role: decode needs a pool of role prefill"),
        ("pools={p: {role: fast}, d: {role: decode}}",
         "pools.p.role: unknown value 'fast' (one of: prefill, decode, both)"),
        ("pools={p: {role: prefill}, b: {role: both}}",
         "pools.p.role: prefill does not go with role both, which pool b has"),
        ("transfer=null", "is required with prefill and decode servers"),
        ("transfer.bandwidth_gb_s=0", "must be at least 0.001, got 0"),
        ("pools.decode.scheduler={family: vllm, num_gpu_blocks_override: 99}",
         "pools.decode.scheduler.family: is vllm, but that of pool east is sglang"),
        ("pools.decode.scheduler.batching=static",
         "pools.decode: a static batch is prefilled and decoded by one server, of role both"),
        ("pools.decode.scheduler.page_size=32", "is 32, but that of pool east is 16"),
        ("pools.east.router=random",
         "pools.west.router: differs from that of pool east, which has the same role"),
        ("pools={}", "must have 1 or more items, got 0"),
        ("pools=3", "must be a mapping, got 3"),
        ("pools.decode=null", "must be a mapping, got null"),
        ("pools.decode.replicas=0", "must be at least 1, got 0"),
        ("pools.decode.nosuch=1", f"unknown key (known: {KEYS})"),
        ("pools.decode.scheduler.page_sise=1",
         "pools.decode: unknown key (did you mean page_size?)"),
        ("pools.nosuch.replicas=2",
         "pools: pool nosuch has no role (other pools: east, west, decode)"),
        ('pools={"a b": {role: prefill}, d: {role: decode}}', f"{NAMES}, got the string 'a b'"),
        ("pools={P: {role: prefill}, p: {role: decode}}", "P and p differ in case only"),
        ("transfer.decode_server_chosen=after_prefill",
         "SGLang needs both servers from the beginning: use at_arrival"),
    ],
)  # fmt: skip
def test_bad_pools_are_one_line(simulate, disaggregated, changes, message):
    """Which option, which key, and why."""
    ended = simulate("validate", disaggregated, "--set", changes)
    assert ended.code == 2
    label = f"--set {changes}"
    assert ended.err.count("\n") == 1
    assert ended.err.endswith(f": {message}\n")
    start = f"simulate: {label[:60]}"
    assert ended.err.startswith(start) or "pools.west.router" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  west: {role: prefill,", "  east: {role: prefill,",
         "disaggregated.yaml:18: duplicate key 'east', first given on line 17"),
        ("{role: decode, replicas: 2,", "{role: decode, replicas: 0,",
         "disaggregated.yaml:19: pools.decode.replicas: must be at least 1, got 0"),
        ("pools:\n", "poolz:\n", "disaggregated.yaml:16: poolz: unknown key (did you mean pools?)"),
        ("{role: decode,", "{rôle: decode,",
         "disaggregated.yaml:19: pools: pool decode has no role (other pools: east, west)"),
        ("latency: {dp: 2}", "latency: {dp: 2, step_s: -1}",
         "disaggregated.yaml:19: pools.decode: latency.step_s: must be at least 0, got -1"),
    ],
)  # fmt: skip
def test_bad_pools_in_a_file_name_the_line(simulate, disaggregated, old, new, message):
    assert old in DISAGGREGATED
    Path(disaggregated).write_text(DISAGGREGATED.replace(old, new), encoding="utf-8")
    ended = simulate("validate", disaggregated)
    assert (ended.code, ended.err) == (2, f"simulate: {message}\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("autoscale={rule: {kind: slo}, max_replicas: 4}",
         "autoscale.rule: of kind slo needs slo.ttft_ms in a pool of role prefill"),
    ],
)  # fmt: skip
def test_a_key_of_all_pools_is_named_where_it_was_written(simulate, disaggregated, change, message):
    """Not at the pool that takes it over."""
    others = ("model=llama-3.1-8b", "hardware=h100-sxm", "slo={tpot_ms: 9}",
              "pools.decode.latency=null")  # fmt: skip
    options = [word for text in (*others, change) for word in ("--set", text)]
    ended = simulate("validate", disaggregated, *options)
    assert (ended.code, ended.err) == (2, f"simulate: --set {change}: {message}\n")


def test_decode_servers_need_the_model_of_prefill_servers(simulate, disaggregated):
    """Their KV has the same shape then. Servers that compute whole requests may differ."""
    models = [word for text in ("model=llama-3.1-8b", "hardware=h100-sxm",
              "pools.decode.model=qwen2.5-0.5b") for word in ("--set", text)]  # fmt: skip
    ended = simulate("validate", disaggregated, *models)
    reason = ("has KV of another shape or number format than that of pool east:"
              " prefill and decode servers need the same")  # fmt: skip
    assert (ended.code, ended.err) == (
        2, f"simulate: --set pools.decode.model=qwen2.5-0.5b: {reason}\n",
    )  # fmt: skip
    assert simulate("validate", disaggregated, *models[:4]).code == 0
    Path(disaggregated).write_text(TOGETHER, encoding="utf-8")
    models[-1] = "pools.new.model=qwen2.5-0.5b"
    assert simulate("validate", disaggregated, *models).code == 0


def test_links_without_pools_are_refused(simulate, disaggregated):
    """And with servers that send nothing."""
    ended = simulate("validate", disaggregated, "--set", "pools=null")
    reason = "transfer needs pools of prefill and decode servers"
    assert (ended.code, ended.err) == (2, f"simulate: disaggregated.yaml:20: {reason}\n")
    ended = simulate("validate", disaggregated, "--set", "pools={b: {role: both}}")
    assert (
        ended.err == "simulate: disaggregated.yaml:20: transfer: needs prefill and decode servers\n"
    )


def test_sweep_over_pools(simulate, disaggregated):
    """Replicas, and what all pools share; metrics of pools can be drawn."""
    section = (
        "sweep={pools.decode.replicas: [1, 2], scheduler.max_total_tokens: [40000, 50000]}",
        "report={plots: [{kind: bars, x: pools.decode.replicas, y: [pools.decode.busy_pct]}]}",
        "workload.num_requests=20",
    )
    options = [word for text in section for word in ("--set", text)]
    ended = simulate("sweep", disaggregated, *options, "--out", "s", "--jobs", "1")
    assert ended.code == 0, ended.err
    results = json.loads(Path("s/results.json").read_text("utf-8"))
    assert len(results["points"]) == 4
    assert simulate("report", "s").code == 0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("sweep={pools.nosuch.replicas: [1]}", "pool nosuch has no role"),
        ("sweep={pools.decode.replicas: [1, 0]}", "pools.decode.replicas=0: must be at least 1"),
    ],
)
def test_bad_sweeps_over_pools_are_one_line(simulate, disaggregated, section, message):
    ended = simulate("sweep", disaggregated, "--set", section)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert message in ended.err


def test_every_pool_is_part_of_a_scenario_s_hash(disaggregated):
    """Also what a pool has from the keys of all, where the last pool has its own."""
    own = ["pools.decode.scheduler.schedule_policy=fcfs"]
    base = load_scenario(disaggregated, own)
    hashes = {
        load_scenario(disaggregated, [*own, *changes]).content_hash
        for changes in ([], ["scheduler.schedule_policy=lpm"],
                        ["pools.west.latency={step_s: 0.02}"],
                        ["pools.west.replicas=3"])
    }  # fmt: skip
    assert len(hashes) == 4
    assert (
        load_scenario(disaggregated, [*own, "pools.west.replicas=1"]).content_hash
        == base.content_hash
    )


def test_import_takes_pools_from_a_template(simulate, disaggregated):
    """All but the traffic; the scenario runs."""
    Path("results.json").write_text(vllm_bench([served(n) for n in range(3)]), encoding="utf-8")
    ended = simulate("import", "results.json", "--out", "mine", "--template", disaggregated)
    assert ended.code == 0, ended.err
    made, template = load_scenario("mine/scenario.yaml"), load_scenario(disaggregated)
    assert made.scenario.pools == template.scenario.pools
    assert made.scenario.transfer == template.scenario.transfer
    assert simulate("run", "mine/scenario.yaml").code == 0
    validated = calibrate_main(["validate", "mine/scenario.yaml", "mine/measured.jsonl.gz"])
    assert validated == 0


@pytest.mark.parametrize("arguments", [(), ("--template", "disaggregated.yaml", "--out", "o")])
def test_fits_refuse_pools(disaggregated, capsys, arguments):
    """Step times of one server cannot be told from those of several kinds."""
    row = {
        "arrival_s": 0,
        "first_token_s": 1,
        "finish_s": 2,
        "prompt_tokens": 9,
        "output_tokens": 3,
    }
    lines = [json.dumps({"rid": str(number), **row}) for number in range(40)]
    Path("m.jsonl").write_text("\n".join(lines), encoding="utf-8")
    arguments = arguments or ("--scenario", disaggregated, "-o", "host.json")
    assert calibrate_main(["fit", "m.jsonl", *arguments]) == 2
    err = capsys.readouterr().err
    assert "disaggregated.yaml" in err
    assert "pools: does not go with a fit" in err
    assert err.count("\n") == 1
