"""docs/how-to/model-and-gpu.md: its scenario runs, its errors and its table are right.

docs/how-to/troubleshooting.md goes on with the same scenario.
"""

import re
from pathlib import Path

import pytest

from sim.cli import main
from sim.core.errors import InputError
from sim.scenario.load import load_scenario
from tests.support.scheduler_settings import build_scheduler_config

PAGE = Path(__file__).parents[2] / "docs/how-to/model-and-gpu.md"
TEXT = PAGE.read_text(encoding="utf-8")
TROUBLES = PAGE.with_name("troubleshooting.md").read_text(encoding="utf-8")
REFUSED = re.compile(r"^\$ simulate (validate .*)\n(simulate: .*\n)", re.MULTILINE)
SCENARIO = TEXT.split("```yaml\n")[1].split("```")[0]
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if (line.startswith("| `") and "`tp`" in line) or (line.startswith("| `") and "/" in line)
]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my-model.yaml").write_text(SCENARIO, encoding="utf-8")


@pytest.mark.parametrize("line", re.findall("^simulate run.*", TEXT, re.MULTILINE))
def test_commands_run(line, capsys):
    assert main(line.split()[1:]) == 0
    assert "TTFT" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "answer"), REFUSED.findall(TEXT) + REFUSED.findall(TROUBLES))
def test_refusals_are_as_shown(capsys, command, answer):
    assert main(command.split()) == 2
    assert capsys.readouterr().err == answer


def test_one_line_prints_what_is_shown(capsys):
    """With the operators of the package; `...` stands for some lines."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    command, *lines = TEXT.partition("```console\n$ ")[2].partition("\n```")[0].splitlines()
    assert main(command.split()[1:]) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    for line in lines:
        assert line == "..." or line in printed


def cases():
    (_, _, *gpus), *rows = ROWS
    return [
        (model, tp, gpu, tokens)
        for model, tp, *cells in rows
        for gpu, tokens in zip(gpus, cells, strict=True)
    ]


@pytest.mark.parametrize(("model", "tp", "gpu", "tokens"), cases())
def test_pools_are_those_of_the_table(model, tp, gpu, tokens):
    keys = [f"model={model}", f"hardware={gpu}", f"latency.tp={tp}"]
    loaded = load_scenario(Path("my-model.yaml"), [*keys, "scheduler.kv_cache_dtype=auto"])
    if tokens:
        pool = build_scheduler_config(loaded.scenario).pool_tokens
        assert pool == int(tokens.replace(",", ""))
    else:
        with pytest.raises(InputError, match="does not fit"):
            build_scheduler_config(loaded.scenario)
