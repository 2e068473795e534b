"""The playground: its controls, what it simulates, and whom the server answers."""

import http.client
import json
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from sim.commands.serve import make_server
from sim.core.errors import InputError
from sim.scenario.load import load_scenario
from tests.support.browser import Browser, find_browser

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"
POLICY, FAIRNESS_T = "scheduler.schedule_policy", "scheduler.fairness.t_ms"
CHUNK = "scheduler.chunked_prefill_size"


@contextmanager
def served(path=None, overrides=()):
    """A server that answers, on a free port."""
    with make_server(path, overrides, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def server():
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def playground(server):
    return server.playground


def answer(server, method, path, body=None, **headers):
    """Status and JSON content of an answer; headers replace those of the page's own script."""
    host = f"127.0.0.1:{server.server_port}"
    own = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/json"}
    sent = {name: value for name, value in (own | headers).items() if value is not None}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request(method, path, body, sent)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.getheader("Content-Type") == "application/json"
    return response.status, json.loads(content) if is_json else content


def figures(run):
    return dict(run["figures"])


def test_controls_of_the_demo_are_those_that_matter(playground):
    """A load for each tenant, policy, FAIRNESS_T, chunk, pool and replicas, at their values."""
    values = {each["label"]: each["value"] for each in playground.describe()["controls"]}
    assert values == {
        "hot: rate_rps (requests/s)": "535",
        "cold: rate_rps (requests/s)": "16",
        "schedule_policy": "lpm",
        "FAIRNESS_T (ms)": "200",
        "chunked_prefill_size (tokens)": "8192",
        "max_total_tokens (tokens)": "24000",
        "replicas (servers)": "1",
    }


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("{family: vllm, num_gpu_blocks_override: 512}",
         {"scheduling_policy", "max_num_batched_tokens", "num_gpu_blocks_override"}),
        ("{fairness: {kind: k_lpm, k: 4}, max_total_tokens: 8192}",
         {"schedule_policy", "chunked_prefill_size", "max_total_tokens"}),
    ],
)  # fmt: skip
def test_controls_fit_the_scheduler(section, keys):
    """Keys of its family; no FAIRNESS_T beside another rule."""
    with served(SMOKE, [f"scheduler={section}"]) as server:
        controls = server.playground.describe()["controls"]
        found = {each["key"].removeprefix("scheduler.") for each in controls}
        assert found - {"replicas", "workload.arrivals.rate_rps"} == keys
        assert server.playground.simulate({}, 20)["runs"]


def test_move_shows_fcfs_beside_the_policy(playground):
    """Two runs of the first requests, each with four curves; every stop of a slider is valid."""
    found = playground.simulate({FAIRNESS_T: "50"}, 200)
    assert (found["num_requests"], found["num_all"]) == (200, 4120)
    assert [run["name"] for run in found["runs"]] == ["fcfs", "lpm"]
    for run in found["runs"]:
        assert list(run["curves"]) == ["ttft", "hits", "queue", "kv"]
        assert all(len(c["x"]) == len(c["y"]) > 5 for c in run["curves"].values())
    first, chosen = map(figures, found["runs"])
    assert float(chosen["cache hit rate (% of prompt tokens)"]) > float(
        first["cache hit rate (% of prompt tokens)"]
    )
    for control in playground.describe()["controls"][2:]:
        for stop in control["stops"]:
            if stop not in {"priority", "sjf"}:  # these need more than the demo's requests say
                assert playground.yaml({control["key"]: stop})


def test_move_says_how_far_to_believe_it(playground):
    """As the summary of a run does."""
    trust = [run["trust"] for run in playground.simulate({}, 100)["runs"]]
    assert trust == [["step times: a formula of the scenario: nothing is claimed"]] * 2


def test_fcfs_alone_is_one_run(playground):
    """There is nothing to compare it with."""
    assert [run["name"] for run in playground.simulate({POLICY: "fcfs"}, 50)["runs"]] == ["fcfs"]


def test_same_move_gives_the_same_curves(playground):
    """Whatever was moved in between; only the time that it took differs."""
    first = playground.simulate({CHUNK: "512"}, 100)["runs"]
    playground.simulate({"replicas": "2"}, 100)
    assert playground.simulate({CHUNK: "512"}, 100)["runs"] == first


def test_no_limit_is_the_far_end_of_a_slider():
    """-1, which the page calls infinite, is more than any other chunk."""
    with served(SMOKE, [f"{CHUNK}=-1"]) as server:
        controls = {each["key"]: each for each in server.playground.describe()["controls"]}
    assert controls[CHUNK]["names"] == {"-1": "∞"}
    assert controls[CHUNK]["stops"][0] == "64"
    assert controls[CHUNK]["stops"][-2:] == ("16384", "-1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({CHUNK: "100"}, f"--set {CHUNK}=100: scheduler: chunked_prefill_size 100 is not a"),
        ({"replicas": "many"}, "--set replicas=many: must be a whole number, got"),
        ({POLICY: "evil:Class"}, f"{POLICY}: 'evil:Class' is no choice of this page"),
        ({"name": "x"}, "name: is no setting of this page"),
        ({"replicas": "1" * 300}, "replicas: '1111"),
        ({"\x1b[2J\u202e": "1"}, "\\x1b[2J\\u202e: is no setting of this page"),
    ],
)  # fmt: skip
def test_wrong_value_is_answered_with_one_line(server, settings, message):
    """The scenario's own words; only the controls can be set, so no code can be named."""
    for path in ("/simulate", "/yaml"):
        status, content = answer(server, "POST", path, json.dumps({"settings": settings}))
        assert status == 422
        assert content["error"].startswith(message)
        assert "\n" not in content["error"]


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "[" * 9_000, '{"settings": {"replicas": 2}}', '{"settings": null}',
             '{"settings": {}, "num_requests": true}', '{"settings": {}, "num_requests": 0}'],
)  # fmt: skip
def test_what_the_page_never_sends_is_refused(server, body):
    """Nothing is simulated, and the server goes on."""
    assert answer(server, "POST", "/simulate", body)[0] == 422
    assert answer(server, "GET", "/scenario")[0] == 200


@pytest.mark.parametrize("length", ["65537", "9" * 5_000, "-1", "x", ""])
def test_body_of_no_or_too_great_a_length_is_refused(server, length):
    """Before it is read."""
    status, content = answer(server, "POST", "/simulate", None, **{"Content-Length": length})
    assert (status, content) == (413, {"error": "the request is too long"})


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"Host": "evil.example"}),
        ("GET", {"Host": "localhost"}),
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
        ("POST", {"Host": "evil.example"}),
        ("POST", {"Origin": None}),
        ("POST", {"Origin": "http://evil.example"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Content-Type": "text/plain"}),
        ("POST", {"Sec-Fetch-Site": "same-site"}),
    ],
)
def test_other_hosts_and_other_pages_are_refused(server, method, headers):
    """Names of other sites, even if they lead to this address, and pages of other sites."""
    path, body = ("/simulate", '{"settings": {}}') if method == "POST" else ("/scenario", None)
    status, content = answer(server, method, path, body, **headers)
    assert status == 403
    assert list(content) == ["error"]


def test_server_listens_on_the_loopback_address_only(server):
    """And says how the page may be used; a path outside of the page's files is unknown."""
    assert server.server_address[0] == "127.0.0.1"
    for path, kind in (("/", "html"), ("/play.js", "javascript"), ("/play.css", "css"),
                       ("/plotly.min.js", "javascript")):  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        connection.request("GET", path)
        response = connection.getresponse()
        assert len(response.read()) == int(response.getheader("Content-Length")) > 1000
        assert kind in response.getheader("Content-Type")
        assert "default-src 'none'" in response.getheader("Content-Security-Policy")
        connection.close()
    for path in ("/../session.py", "/%2e%2e/session.py", "/page/index.html"):
        assert answer(server, "GET", path)[0] == 404
    assert answer(server, "POST", "/", '{"settings": {}}')[0] == 404


def test_saved_scenario_runs_as_it_was_shown(playground, tmp_path):
    """The text is a scenario with the moved settings, and says where it belongs."""
    path = tmp_path / "saved.yaml"
    path.write_text(playground.yaml({FAIRNESS_T: "null", "replicas": "3"}), encoding="utf-8")
    scenario = load_scenario(path).scenario
    assert (scenario.replicas, scenario.scheduler.fairness.t_ms) == (3, None)
    assert "demo.yaml" in path.read_text(encoding="utf-8").splitlines()[0]


def test_port_in_use_is_one_line(server):
    with pytest.raises(InputError, match=rf"^--port {server.server_port}: cannot be used: "):
        make_server(None, (), server.server_port)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on PATH")
    with Browser(program, tmp_path_factory.mktemp("browser")) as window:
        yield window


def opened(browser, server, link="", **window):
    browser.open(f"{server.url}{link}", **window)
    browser.wait_for("document.body.dataset.moves > 0")


def shown(browser, script):
    return browser.run(f"(() => {{ {script} }})()")


@pytest.mark.parametrize("window", [{}, {"width": 390}, {"dark": True}])
def test_page_draws_all_curves_in_a_browser(browser, server, window):
    """Two lines in each chart, inside the window; the console has nothing to say."""
    opened(browser, server, **window)
    assert browser.said == []
    for chart in ("ttft", "hits", "queue", "kv"):
        assert browser.run(f"document.getElementById('{chart}').data.length") == 2
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("document.querySelectorAll('#figures tr').length") > 8
    assert "the first 600 of 4,120 requests" in browser.run("document.body.innerText")


def test_slider_simulates_anew_and_the_link_holds_it(browser, server):
    """Moved once, opened again from the link: the same settings, figures and curves."""
    opened(browser, server)
    before = browser.run("document.getElementById('figures').innerText")
    slide = "const s = document.querySelectorAll('input[type=range]')[0]; s.value = 20;"
    shown(browser, f"{slide} s.dispatchEvent(new Event('input'));")
    browser.wait_for("document.body.dataset.moves === '2'")
    after = browser.run("document.getElementById('figures').innerText")
    assert after != before
    assert browser.run("document.getElementById('ttft').data.length") == 4  # with the move before
    link = browser.run("location.hash")
    assert link == "#workload.parts.0.workload.arrivals.rate_rps=2140"
    opened(browser, server, link)
    assert browser.run("document.getElementById('figures').innerText") == after
    assert browser.said == []


def test_wrong_value_is_shown_and_the_curves_stay(browser, server):
    """The one line of the scenario's check, as text; correcting the value removes it."""
    opened(browser, server, "#scheduler.chunked_prefill_size=%3Cb%3E7")
    error = "document.getElementById('error')"
    assert browser.run(f"{error}.textContent").startswith(f"--set {CHUNK}=<b>7: ")
    assert browser.run(f"{error}.hidden") is False
    browser.click("#reset")
    browser.wait_for("document.body.dataset.moves === '2'")
    assert browser.run(f"{error}.hidden") is True
    assert browser.run("document.getElementById('kv').data.length") == 2
