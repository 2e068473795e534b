"""A file of others that names code: no command runs it (docs/how-to/fuzz.md has the table)."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from calibrate.cli import main as calibrate
from fuzz.attack import good_files
from fuzz.mutate import MODULE, TRAP
from fuzz.playground import playground
from sim.cli import main as simulate
from sim.core.files import json_digest
from sim.new.__main__ import KINDS

PROGRAMS = {"simulate": simulate, "calibrate": calibrate, "playground": playground}
EVIL = f"{MODULE}:Policy"
KEYS = [kind.key for kind in KINDS.values()]


@pytest.fixture(scope="module")
def good():
    with good_files() as folder:
        yield folder


@pytest.fixture
def folder(good, tmp_path, monkeypatch):
    """Good files of every kind, beside a module that leaves a file when it runs."""
    place = tmp_path / "input"
    shutil.copytree(good, place)
    monkeypatch.chdir(place)
    return place


def set_in(tree, path):
    """Name the class at a key path of JSON data; a `~` stands for a dot in a key."""
    *above, last = path.split(".")
    for key in above:
        tree = tree[int(key)] if isinstance(tree, list) else tree.setdefault(key, {})
    tree[last.replace("~", ".")] = EVIL


def name_in(path, key):
    """Name the class in a JSON document, or in the first line of JSON lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        tree = json.loads(lines[0])
        set_in(tree, key)
        text = "\n".join([json.dumps(tree), *lines[1:]])
    else:
        tree = json.loads("\n".join(lines))
        set_in(tree, key)
        if tree.pop("digest", None):
            tree["digest"] = json_digest(tree)
        text = json.dumps(tree)
    path.write_text(text, encoding="utf-8")


def end_of(commands, capsys):
    """Run commands joined by `&&`; returns the last exit code and everything printed."""
    code = 0
    for command in commands.split("&&"):
        program, *arguments = shlex.split(command)
        code = PROGRAMS[program](arguments)
        if code:
            break
    printed = capsys.readouterr()
    assert not Path(TRAP).exists()
    assert "Traceback" not in printed.err
    return code, printed.out + printed.err


@pytest.mark.parametrize("key", KEYS)
def test_validate_of_a_log_asks_before_it_runs_the_code_of_its_scenario(folder, capsys, key):
    """In whatever key."""
    name_in(folder / "run.jsonl", f"scenario.{key}")
    command = "calibrate validate example/tiny-cpu run.jsonl --any-fingerprint"
    code, said = end_of(command, capsys)
    assert (code, said[said.index(EVIL) :]) == (
        2, f"{EVIL} is Python code: it runs only with --user-code\n",
    )  # fmt: skip


# Keys of a scenario in the file, or those given; the command; its exit code and what it says.
WAYS = [
    ("run.jsonl", "scenario", "calibrate fit run.jsonl -o fitted.json", 0, ""),
    ("run.jsonl", "scenario", "simulate compare run.jsonl served.yaml", 0, ""),
    ("run.jsonl", "scenario", "simulate compare other.jsonl run.jsonl", 0, ""),
    ("decisions.jsonl", "mode kind", "simulate compare decisions.jsonl base.yaml", 2, EVIL),
    ("decisions.jsonl", "mode kind", "simulate run recorded.yaml", 2, "104 recorded steps"),
    ("run/scenario.json", "", "simulate report run --out report", 0, ""),
    ("run/summary.json", "latency_source", "simulate report run --out report", 0, ""),
    ("tune/results.json", "scenario", "simulate report tune --out report", 0, ""),
    ("plan/results.json", "scenario", "simulate report plan --out report", 0, ""),
    ("{point}", "scenario", "simulate report sweep --out report", 0, ""),
    ("{point}", "scenario", "simulate sweep sweep.yaml --out sweep --jobs 1", 0, ""),
    ("{point}", "settings.scheduler~schedule_policy",
     "simulate sweep sweep.yaml --out sweep --jobs 1", 0, ""),
    ("sglang.json", "server_info.schedule_policy server_info.router server_info.model_path",
     "simulate import sglang.json --out i && simulate run i/scenario.yaml", 0, ""),
    ("sglang.json", "server_info.schedule_policy", "calibrate fit sglang.json --out i", 0, ""),
    ("vllm.json", "model_id tokenizer_id backend",
     "simulate import vllm.json --out i && simulate run i/scenario.yaml", 0, ""),
    ("guidellm.json", "config.spec.backend.model",
     "simulate import guidellm.json --out i && simulate run i/scenario.yaml", 0, ""),
    ("measured.jsonl", "rid", "calibrate validate base.yaml measured.jsonl", 0, ""),
    ("measured.jsonl", "rid", "calibrate fit measured.jsonl --scenario serial.yaml -o f.json", 0,
     ""),
    ("profile.json", "model name", "simulate run profiled.yaml", 2, EVIL),
    ("profile.json", "model name", "calibrate show profile.json", 0, EVIL),
    ("model/config.json", "model_type auto_map.AutoConfig", "simulate run modelled.yaml", 2, EVIL),
    ("servetwin.jsonl", "tenant session rid", "simulate workload servetwin.jsonl", 0, ""),
    ("servetwin.jsonl", "tenant session rid", "simulate run trace-servetwin.yaml", 0, EVIL),
    ("lmsys.jsonl", "model conversation.0.role", "simulate workload lmsys.jsonl", 0, ""),
    ("weka.jsonl", "id hash_id_scope", "simulate workload weka.jsonl", 2, EVIL),
    ("body.json", "settings.scheduler~schedule_policy", "playground base.yaml body body.json", 2,
     EVIL),
    ("body.json", "settings.router", "playground base.yaml body body.json", 2, "router: is no"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "keys", "command", "code", "said"), WAYS)
def test_a_name_of_code_in_a_file_of_others_runs_nothing(
    folder, capsys, file, keys, command, code, said
):
    """It is left out, refused in one line, or taken for a text."""
    if file == "{point}":
        file = min((folder / "sweep/points").iterdir())
    is_scenario = keys in {"", "scenario"}
    above = f"{keys}." if keys and is_scenario else ""
    for key in [f"{above}{key}" for key in KEYS] if is_scenario else keys.split():
        name_in(folder / file, key)
    found = end_of(command, capsys)
    assert (found[0], said in found[1]) == (code, True), found


def test_a_name_of_code_in_a_log_of_a_server_is_left_out(folder, capsys):
    """The text log is no JSON."""
    text = Path("log.txt").read_text(encoding="utf-8")
    arguments = f"server_args=ServerArgs(schedule_policy='{EVIL}', router='{EVIL}')"
    Path("log.txt").write_text(f"[2026-01-31 11:59:58] {arguments}\n{text}", encoding="utf-8")
    command = "simulate import log.txt --out i && simulate run i/scenario.yaml"
    assert end_of(command, capsys)[0] == 0
    assert f"{EVIL}\n" not in Path("i/scenario.yaml").read_text()


@pytest.mark.parametrize("option", ["--model", "--weights", "--server", "--hardware"])
def test_a_question_for_a_plan_names_no_code(folder, capsys, option):
    given = {"--model": "qwen2.5-0.5b", "--hardware": "mi300x", "--rate-rps": "1",
             "--prompt-tokens": "9", "--output-tokens": "2", "--ttft-ms": "900", "--tp": "1",
             "--server": "vllm", option: EVIL}  # fmt: skip
    options = " ".join(f"{name} {value}" for name, value in given.items())
    short = "--set workload.num_requests=5 --set plan.seeds=[1] --jobs 1"
    assert end_of(f"simulate plan {options} {short}", capsys)[0] in {1, 2}
