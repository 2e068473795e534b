"""`simulate report` from end to end: what it draws, refuses, and does not touch."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.metrics.registry import LATENCIES, PHASES, RUN_METRICS
from sim.report.plots import automatic_plots
from sim.scenario.load import load_scenario
from sim.sweep.result_files import read_results

FAIRNESS = """\
sweep:
  scheduler.fairness.t_ms: [0, 50, 400, null]
  seeds: [1, 2, 3]
"""
REPORT = """\
report:
  title: Who <waits>?
  text: |
    First & foremost.

    Then the rest.
  plots:
    - {kind: trade-off, x: p99_ttft_ms, y: cache_hit_rate_pct, along: scheduler.fairness.t_ms}
    - {kind: cdf, lines: scheduler.fairness.t_ms}
"""
VOID = {"meta", "img", "link", "br", "hr", "input"}


@pytest.fixture
def swept(simulate, inline, scenario):
    """Sweep study.yaml with these sections into `out`."""
    text = Path(scenario).read_text(encoding="utf-8")
    fair = text.replace("  page_size", "  fairness: {kind: fairness_t, t_ms: 5}\n  page_size")

    def run(sections, *options):
        Path(scenario).write_text(fair + sections, encoding="utf-8")
        return simulate("sweep", scenario, "--out", "out", *options)

    return run


class Page(HTMLParser):
    """Reads a page; fails on tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.images, self.tags, self.words = [], [], [], set(), []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"href", "src", "srcset", "action", "data", "poster"}:
                self.links.append(value)
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def page_of(folder):
    text = Path(folder, "index.html").read_text(encoding="utf-8")
    return Page(text), text


def test_report_of_a_sweep_is_one_page_with_everything_inside(simulate, swept):
    """Every figure of the section, in order, each also as files; nothing from elsewhere."""
    swept(FAIRNESS + REPORT)
    ended = simulate("report", "out")
    assert (ended.code, ended.err) == (0, "")
    written = ended.out.splitlines()
    assert all(Path(path).stat().st_size for path in written)
    assert len(written) == 1 + 2 * 2
    page, text = page_of("out/report")
    assert len(page.images) == 2
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert not page.tags & {"link", "iframe", "object"}
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    assert policy in text
    assert "unsafe-eval" not in text
    assert [image["alt"] for image in page.images] == [
        "Cache hit rate against p99 TTFT, by FAIRNESS_T",
        "Distribution of TTFT by FAIRNESS_T",
    ]
    words = "".join(page.words)
    assert "Who <waits>?" in words
    assert "First & foremost." in words
    assert "4 settings with 3 seeds each" in words
    assert "t_ms: 5" in words


def test_report_of_one_folder_has_equal_bytes_whatever_the_hash_seed(simulate, python, swept):
    """Every file, by processes that hash otherwise; one of them has no home for its caches."""
    swept(FAIRNESS + REPORT)
    here = simulate("report", "out", "--out", "here")
    there = python("-m", "sim", "report", "out", "--out", "there", MPLCONFIGDIR=os.devnull)
    assert there == (0, here.out.replace("here", "there"), "")
    contents = [
        {path.name: path.read_bytes() for path in Path(place).iterdir()}
        for place in ("here", "there")
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 5


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("scheduler.fairness.t_ms: [0, 100, null]", "trade-off curve curve cdf cdf"),
        (
            "{scheduler.chunked_prefill_size: [64, 256], scheduler.max_prefill_tokens: [256, 512]}",
            "curve curve heat heat cdf cdf",
        ),
        ("scheduler.schedule_policy: [fcfs, lpm]", "bars bars cdf cdf"),
        ("workload.arrivals.rate_rps: [5, 40]", "load cdf cdf"),
    ],
    ids=["fairness", "budgets", "policy", "load"],
)
def test_report_without_a_section_draws_what_the_keys_ask_for(swept, section, kinds):
    """The set of plots, of real sweeps."""
    swept(f"sweep: {section}\n" if section.startswith("{") else f"sweep:\n  {section}\n")
    assert [plot.kind for plot in automatic_plots(read_results(Path("out")))] == kinds.split()


def test_report_section_changes_no_point(simulate, swept, scenario):
    """Identity, results and what is stored stay; only what is drawn changes."""
    swept(FAIRNESS)
    before = load_scenario(scenario).content_hash
    rows = json.loads(Path("out/results.json").read_text())["points"]
    ended = swept(FAIRNESS + REPORT)
    assert ended.err == "sweep: 12 points, 0 to run\n"
    assert load_scenario(scenario).content_hash == before
    after = json.loads(Path("out/results.json").read_text())
    assert after["points"] == rows
    assert after["scenario"]["report"]["title"] == "Who <waits>?"
    stored = next(Path("out/points").iterdir())
    assert "report" not in json.loads(stored.read_text())["scenario"]
    assert simulate("run", scenario).code == 0


def test_report_of_a_run_shows_its_requests_and_its_time(simulate, scenario):
    """Distribution and timeline, and the tables of its summary; the same bytes again."""
    simulate("run", scenario, "--out", "out")
    ended = simulate("report", "out", "--out", "seen")
    names = [Path(line).name for line in ended.out.splitlines()]
    assert names == [
        "index.html", "01-ttft.svg", "01-ttft.png", "02-timeline.svg", "02-timeline.png",
    ]  # fmt: skip
    page, text = page_of("seen")
    words = "".join(page.words)
    assert len(page.images) == 2
    assert "a run of 40 requests" in words
    summary = json.loads(Path("out/summary.json").read_text())
    assert f"{summary['p99_ttft_ms']:.2f}" in words or f"{summary['p99_ttft_ms']:.1f}" in words
    simulate("run", scenario, "--out", "out")
    simulate("report", "out", "--out", "seen")
    assert page_of("seen")[1] == text


def test_report_replaces_its_own_files_and_no_others(simulate, swept):
    """Figures of an earlier report go; notes of the user's stay."""
    swept(FAIRNESS + REPORT)
    Path("out/report").mkdir()
    for name in ("07-old.svg", "notes.txt", "2024-plan.svg.txt"):
        Path("out/report", name).write_text("x")
    simulate("report", "out")
    names = {path.name for path in Path("out/report").iterdir()}
    assert "07-old.svg" not in names
    assert {"notes.txt", "2024-plan.svg.txt", "index.html"} <= names


def test_report_shows_what_failed(simulate, swept):
    """Points without results are counted above, listed below, and left out of figures."""
    sections = "sweep:\n  model: [null, nosuch]\n  scheduler.schedule_policy: [fcfs, lpm]\n"
    swept(f"{sections}report: {{plots: [{{kind: cdf, lines: scheduler.schedule_policy}}]}}\n")
    assert simulate("report", "out").code == 0
    words = "".join(page_of("out/report")[0].words)
    assert "2 points failed and are not in the figures." in words
    assert "unknown model 'nosuch'" in words


def damage_point():
    path = next(Path("out/points").iterdir())
    path.write_text(path.read_text()[:100])


def remove_point():
    next(Path("out/points").iterdir()).unlink()


def edit_results(change):
    path = Path("out/results.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damage_point, "out/points/[0-9a-f]{64}\\.json: is damaged \\(simulate sweep"),
        (remove_point, "out/points/[0-9a-f]{64}\\.json: is missing \\(simulate sweep"),
        (lambda: Path("out/results.json").unlink(), "out: has neither results\\.json"),
        (lambda: Path("out/results.json").write_text("{"), "out/results\\.json:1: not JSON"),
        (lambda: Path("out/results.json").write_text("[]"), "out/results\\.json: not a JSON"),
        (lambda: edit_results(lambda content: content.pop("point_files")),
         "out/results\\.json: point_files: missing \\(simulate sweep"),
        (lambda: edit_results(lambda c: c["scenario"]["report"]["plots"][0].update(y="nope")),
         "out/results\\.json: report\\.plots\\.0\\.y: unknown metric 'nope'"),
        (lambda: edit_results(lambda c: c["scenario"]["report"].update(plots=[{"kind": "pie"}])),
         "out/results\\.json: report\\.plots\\.0: "),
    ],
)  # fmt: skip
def test_report_of_an_unfinished_or_damaged_sweep_is_refused(swept, refused_bare, change, reason):
    """One line that names the file; nothing is written."""
    swept(FAIRNESS + REPORT, "--set", "sweep.seeds=[1]")
    change()
    assert re.match(reason, refused_bare("report", "out"))


def test_report_of_an_older_or_damaged_run_is_refused(simulate, scenario, refused_bare):
    """A file that is missing; a timeline whose columns are missing, cut off, or no numbers."""
    simulate("run", scenario, "--out", "out")
    header = Path("out/timeline.csv").read_text().splitlines()[0]
    cases = [(name, None, "No such file") for name in ("scenario.json", "requests.parquet")]
    cases += [
        ("timeline.csv", None, "No such file"),
        ("timeline.csv", "", "has no rows"),
        ("timeline.csv", f"{header}\n1,2\n", "has 2 fields, the header 8"),
        (
            "timeline.csv",
            f"{header}\n{'x,' * header.count(',')}x\n",
            "t_s: must be a number, 0 or more",
        ),
        ("summary.json", "{", "Expecting"),
        ("scenario.json", "[]", "not a JSON object (simulate run"),
        ("scenario.json", f'{{"x": {"[" * 200}{"]" * 200}}}', "are nested over 50 deep"),
        ("requests.parquet", "x", ""),
    ]
    for name, content, reason in cases:
        path = Path("out", name)
        whole = path.read_bytes()
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        line = refused_bare("report", "out")
        assert line.startswith((f"out/{name}: ", f"out/{name}:1: ", f"out/{name}:2: "))
        assert reason in line
        path.write_bytes(whole)


def test_report_of_impossible_values_is_refused(simulate, scenario, refused_bare):
    """A damaged table can be read as Parquet and still have bad texts, or arrivals at no time."""
    simulate("run", scenario, "--out", "out")
    path = Path("out/requests.parquet")
    table = pq.read_table(path)
    no_text = pa.array([b"\x8d"] * len(table), pa.binary()).view(pa.string())
    no_time = pa.array([float("nan")] * len(table))
    for name, values, reason in (
        ("rid", no_text, "Invalid UTF8"),
        ("arrival_s", no_time, "arrival_s: row 1 has nan, not a time of 0 or more"),
    ):
        pq.write_table(table.set_column(table.column_names.index(name), name, values), path)
        assert reason in refused_bare("report", "out")


def test_report_of_no_folder_is_refused(refused_bare):
    """Nothing there, and nothing in it."""
    assert refused_bare("report", "gone") == "gone: is no folder of a run, a sweep or a search"
    Path("empty").mkdir()
    assert refused_bare("report", "empty").startswith("empty: has neither results.json")


@pytest.mark.parametrize(
    ("plot", "line"),
    [
        ("{kind: cdf, lines: scheduler.fairness.t_mss}",
         "study.yaml:29: report.plots.0.lines: scheduler.fairness.t_mss is not swept (did you"),
        ("{kind: curve, x: scheduler.fairness.t_ms, y: tenants.a.p99_ttft_ms}",
         "study.yaml:29: report.plots.0.y: unknown metric 'tenants.a.p99_ttft_ms'"),
        ("{kind: curve, x: scheduler.fairness.t_ms, yy: p99_ttft_ms}",
         "study.yaml:29: report.plots.0.yy: unknown key (did you mean y?)"),
        ("{kind: pie}", "study.yaml:29: report.plots.0.kind: unknown kind 'pie'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["validate", "sweep"])
def test_report_sections_are_checked_before_anything_runs(
    scenario, refused_bare, command, plot, line
):
    """File, line, key, and what was perhaps meant."""
    text = Path(scenario).read_text(encoding="utf-8")
    fair = text.replace("  page_size", "  fairness: {kind: fairness_t, t_ms: 5}\n  page_size")
    section = f"report:\n  plots:\n    - {plot}\n"
    Path(scenario).write_text(fair + FAIRNESS + section, encoding="utf-8")
    assert refused_bare(command, scenario).startswith(line)


def test_report_help_lists_every_metric_with_its_definition(simulate):
    """Statistics of a latency share a line; all else is named as the report section names it."""
    code, out, _ = simulate("report", "--help")
    assert code == 0
    words = " ".join(out.split())
    in_one_line = set()
    for latency in (*LATENCIES.values(), *PHASES.values()):
        in_one_line |= {f"{name}_{latency.name}_ms" for name in latency.statistics}
        assert f" STATISTIC_{latency.name}_ms {latency.label}: {latency.definition}; " in words
    for known in RUN_METRICS.values():
        assert known.name in in_one_line or f" {known.name} {known.definition}" in words
