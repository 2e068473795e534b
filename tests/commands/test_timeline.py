"""`simulate timeline`, and `simulate run --timeline`: a page and a Perfetto trace of a log."""

import json
import re
from pathlib import Path

import pytest

from sim.report.timeline import SpanKind, activity
from sim.runlog.run_log_file import read_decisions
from tests.support.browser import Browser, find_browser

# A pool so small that requests are retracted or preempted.
TIGHT = ("--set", "scheduler.max_total_tokens=1024", "--set", "workload.arrivals.rate_rps=60")
SETTINGS = {
    "sglang": ("--set", "scheduler.schedule_conservativeness=0.05"),
    "vllm": ("--set", "scheduler={family: vllm, num_gpu_blocks_override: 64, max_model_len: 512}"),
    "ranks": ("--set", "latency.dp=2", "--set", "replicas=2"),
}
EVIL = "</script><img src=x onerror=alert(1)>"


def data_of(page):
    text = Path(page).read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(params=["sglang", "vllm"])
def log(request, simulate, scenario):
    """The decision log of a server that is short of memory."""
    ended = simulate("run", scenario, "--decisions", "d.jsonl.gz", *TIGHT, *SETTINGS[request.param])
    assert ended.code == 0, ended.err
    return "d.jsonl.gz"


def test_every_moment_of_a_request_is_in_one_span(log):
    """From its arrival to its end, without gaps; prefills have the tokens that steps computed."""
    steps, requests = read_decisions(Path(log))
    (server,) = activity([*steps, *requests])
    for one in server.requests:
        edges = [one.arrival_ns, *(span.end_ns for span in one.spans)]
        assert [span.begin_ns for span in one.spans] == edges[:-1]
        assert edges[-1] == one.end_ns
    spans = [span for one in server.requests for span in one.spans]
    computed = sum(row[2] for step in steps for row in step["prefill"])
    assert sum(span.tokens for span in spans) == computed
    assert sum(step.num_steps for step in server.steps) == len(steps)
    put_back = sum(line["retractions"] + line["preemptions"] for line in requests)
    assert sum(span.kind is SpanKind.PUT_BACK for span in spans) == put_back > 0


def test_page_and_trace_hold_the_log(simulate, log):
    ended = simulate("timeline", log, "--perfetto", "t.json")
    assert ended == (0, "d.html\nt.json\n", "")
    (server,) = data_of("d.html")["servers"]
    assert len(server["requests"]) == 40
    trace = json.loads(Path("t.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if "ts" in event]
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    begun, ended = (sorted(e["name"] for e in events if e["ph"] == ph) for ph in "be")
    assert begun == ended
    assert begun.count("prefill") == sum(
        span[0] == SpanKind.PREFILL for one in server["requests"] for span in one[5]
    )
    assert "put back" in begun


def test_part_of_a_log(simulate, log):
    assert simulate("timeline", log, "--begin", "0.5", "--end", "0.9", "--out", "t.html").code == 0
    (server,) = data_of("t.html")["servers"]
    assert 0 < len(server["requests"]) < 40
    assert all(one[2] < 0.9e9 and one[3] > 0.5e9 for one in server["requests"])


def test_run_writes_the_page_of_its_decision_log(simulate, scenario):
    """With and without the log, by replica and rank; nothing else is left."""
    run = ("run", scenario, *SETTINGS["ranks"])
    assert simulate(*run, "--timeline", "a.html").code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["a.html", "study.yaml"]
    assert simulate(*run, "--timeline", "b.html", "--decisions", "d.jsonl").code == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()
    labels = [server["label"] for server in data_of("a.html")["servers"]]
    assert labels == [f"server {n}, rank {rank}" for n in (0, 1) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no.jsonl"], "no.jsonl: cannot be read: No such file or directory"),
        (["d.jsonl", "--begin", "2", "--end", "1"], "--end 1: must be above --begin, 2"),
        (["d.jsonl", "--begin", "9000"], "d.jsonl: nothing happens in this part of the log"),
        (["d.jsonl", "-o", "t", "--perfetto", "t"], "--perfetto t: is the file of --out already"),
        (["d.jsonl", "--out", "no/t.html"], "no/t.html: its folder no does not exist"),
        (["d.jsonl", "--perfetto", "d.jsonl"], "d.jsonl: is read by this command"),
        (["study.yaml"], "study.yaml:1: "),
        (["bad.jsonl"], "bad.jsonl:1: retracted.0: must be a valid string, got 3"),
    ],
)
def test_bad_input_is_one_line(simulate, refused_bare, scenario, listing, arguments, line):
    assert simulate("run", scenario, "--decisions", "d.jsonl").code == 0
    first = json.loads(Path("d.jsonl").read_text(encoding="utf-8").splitlines()[0])
    Path("bad.jsonl").write_text(json.dumps(first | {"retracted": [3]}), encoding="utf-8")
    before = listing()
    assert line in refused_bare("timeline", *arguments)
    assert listing() == before


def test_page_answers_its_reader(simulate, scenario, tmp_path):
    """In a real browser: zoom by button, key, wheel and drag, finding, words about a place."""
    if (program := find_browser()) is None:
        pytest.skip("no Chromium on PATH")
    simulate("run", scenario, "--decisions", "d.jsonl", *TIGHT, *SETTINGS["sglang"])
    text = Path("d.jsonl").read_text(encoding="utf-8")
    Path("d.jsonl").write_text(text.replace('"rid":"7"', f'"rid":"{EVIL}"'), encoding="utf-8")
    simulate("timeline", "d.jsonl")
    page = Path("d.html").resolve().as_uri()
    with Browser(program, tmp_path / "profile") as browser:

        def view():
            browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))")
            return [float(part) for part in browser.run("document.body.dataset.view").split()]

        for window in ({"width": 390, "height": 800, "dark": True}, {}):
            browser.open(page, **window)
            browser.wait_for("document.body.dataset.ready")
            assert browser.said == []
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
            assert browser.run("performance.getEntriesByType('resource').length") == 0
        whole = view()
        browser.click("#tools button")
        near = view()
        assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=1e-6)
        browser.run("dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
        assert view()[0] > near[0]
        browser.run("dispatchEvent(new KeyboardEvent('keydown', {key: '0'}))")
        assert view() == whole
        at = "{clientX: %d, clientY: %d, bubbles: true, pointerId: 1, button: 0}"
        canvas = "document.getElementById('steps')"
        left, top = (browser.run(f"{canvas}.getBoundingClientRect().{e}") for e in ("left", "top"))
        browser.run(f"{canvas}.setPointerCapture = () => {{}}")
        for event, x in (("pointerdown", 300), ("pointermove", 500), ("pointerup", 500)):
            browser.run(f"{canvas}.dispatchEvent(new PointerEvent('{event}', {at % (x, top + 5)}))")
        part = view()
        scale = (whole[1] - whole[0]) / browser.run("plotWidth()")
        assert part[0] == pytest.approx(whole[0] + (300 - left - 62) * scale, abs=2 * scale)
        assert part[1] - part[0] == pytest.approx(200 * scale, rel=0.01)
        told = browser.run("document.getElementById('tip').textContent")
        assert re.search(r"step|idle", told)
        assert "KV tokens" in told
        browser.run(f"find({json.dumps(EVIL[:9])})")
        assert browser.run("state.found") == 7
        assert "alert" in browser.run("aboutRequest(7, server().requests[7][2])")
        assert browser.run("document.images.length") == 0
        assert browser.said == []
