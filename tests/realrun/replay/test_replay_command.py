"""`realrun replay`: its folder is read by `calibrate validate`; what is wrong is said in a line."""

import json
import threading

import pytest

from calibrate.cli import main as calibrate
from realrun.cli import main
from sim.api.answer import EstimatedTokens
from sim.api.app import Api, ServerInfo
from sim.api.http_server import listen, serve
from sim.api.live_server import LiveServer
from sim.api.metrics import Metrics
from sim.commands.running.simulate import deployment_of
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.vllm.family import VllmFamily
from sim.workload.results.measured import read_measured_requests
from tests.support.serve import LINEAR_LATENCY

SCENARIO = f"""\
name: little
{LINEAR_LATENCY}
workload:
  kind: synthetic
  num_requests: 8
  arrivals: {{kind: constant, rate_rps: 200}}
  prompt_tokens: {{kind: constant, value: 20}}
  output_tokens: {{kind: uniform, min: 2, max: 6}}
scheduler: {{page_size: 1, max_total_tokens: 4096, chunked_prefill_size: 512}}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def url(scenario):
    """A simulated server of the scenario with another chunk size, a hundred times as fast."""
    built = build(load_scenario(scenario, ["scheduler.chunked_prefill_size=256"]))
    settings = built.loaded.scenario.scheduler.model_dump(mode="json") | {"servetwin": "1"}
    info = ServerInfo(model="little", settings=settings)
    stops = []
    with listen("127.0.0.1", 0) as listener:
        metrics = Metrics(VllmFamily().metric_names(), "little", lambda: server.loads)
        server = LiveServer(
            deployment_of(built),
            iter(lambda: 4, None),
            metrics=metrics,
            speed=100,
        )
        app = Api(server, EstimatedTokens(), metrics, info).app()
        thread = threading.Thread(target=serve, args=(app, listener, server.run, stops.append))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stops[0]()
        thread.join()


def replay(path, url, out):
    return main(["replay", str(path), "--url", url, "--out", str(out)])


def test_replay_writes_what_validate_reads_and_names_differing_settings(
    scenario, url, tmp_path, capsys
):
    out = tmp_path / "mine"
    assert replay(scenario, url, out) == 0
    said = capsys.readouterr().err
    assert "The results say otherwise: chunked_prefill_size 256" in said
    server = json.loads((out / "server.json").read_text())
    assert server["settings"]["chunked_prefill_size"] == 256
    assert "vllm:generation_tokens_total" in server["metrics"]["after"]
    files = [str(out / name) for name in ("scenario.yaml", "measured.jsonl.gz")]
    assert calibrate(["validate", *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"]["compared"] == 8
    assert found["scenario"] == "little"
    prompts = read_measured_requests(out / "measured.jsonl.gz")
    assert prompts.notes == ()
    assert [len(request.prompt_ids.ids) for request in prompts.requests] == [20] * 8


@pytest.mark.parametrize(
    ("url", "said"),
    [("ftp://host", "must begin with http"), ("http://127.0.0.1:1", "no server answers")],
)
def test_replay_without_a_server_is_one_line_and_no_folder(scenario, tmp_path, capsys, url, said):
    out = tmp_path / "mine"
    assert replay(scenario, url, out) == 2
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[-1]
    assert lines[-1].startswith("realrun: --url")
    assert not out.exists()
