"""Users' own classes in every key that takes one; `python -m sim.new` writes them to begin with."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from calibrate.rebuild import rebuild
from sim.core.errors import InputError
from sim.families import FAMILIES
from sim.family import user_family
from sim.new.__main__ import KINDS, class_name, start_file, start_texts
from sim.new.__main__ import main as new
from sim.runlog.run_log_file import write_run_log
from sim.scenario.load import load_scenario
from sim.user.modules import user_code
from sim.user.objects import user_classes
from tests.support.measured_runs import measured_run
from tests.support.serve import linear_latency

ALL = pytest.mark.parametrize("kind", KINDS)
BUT_FAMILY = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "family"])
SETTINGS = {
    "policy": "late_ms: 5", "fairness": "num_oldest: 3", "admission": "most_tokens: 300",
    "eviction": "bucket_tokens: 16", "router": "most_ahead: 0", "latency": "new_token_us: 100.0",
    "workload": "size: 25",
}  # fmt: skip
# A method of each kind with its arguments, and an answer that is none.
ANSWERS = {
    "policy": ("order(self, waiting, view)", "3", "int, not a list of requests"),
    "fairness": ("reorder(self, a, b, c)", "a[1:]", "requests, not each of the "),
    "admission": ("candidates(self, w, n)", "()", "none of "),
    "eviction": ("rank(self, node)", "float('nan')", "nan, not a number or a tuple of numbers"),
    "router": ("choose(self, spec, replicas)", "3", "3, not the number of a replica, 0 to 2"),
    "latency": ("step_ns(self, step)", "1.5, 0", "(1.5, 0), not two whole numbers of ns"),
    "workload": ("arrivals(self)", "[1]", "int, not a request"),
}


@pytest.fixture(autouse=True)
def no_module_stays():
    """Imports and families of one test are not seen by the next."""
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("my_", "mine")):
            del sys.modules[name]
    user_family._LOADED.clear()


@pytest.fixture
def started(folder):
    """Write the start of a kind; returns the scenario's file."""

    def write(kind, **texts):
        for name, text in start_texts(KINDS[kind], f"my_{kind}").items():
            Path(name).write_text(text, encoding="utf-8")
        return f"my_{kind}.yaml"

    return write


def named(kind, name):
    """The option that names another class."""
    return "--set", f"{KINDS[kind].key}={name}"


def test_new_starts_and_their_tests_work(folder, python, capsys):
    """All kinds, as a user would make and test them."""
    for kind in KINDS:
        assert new([kind, f"my_{kind}"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == [
            f"  python -m pytest test_my_{kind}.py", f"  simulate run my_{kind}.yaml",
        ]  # fmt: skip
    ended = python("-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert ended.code == 0, ended.out
    assert int(ended.out.split(" passed")[0].split()[-1]) >= 5 * len(KINDS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "there is a module json already: choose another name"),
        ("a-b", "'a-b' is no name of a Python module, such as my_router"),
        ("class", "'class' is no name of a Python module, such as my_router"),
        ("kept_router", "kept_router.yaml: is there already, and is not overwritten"),
        ("path", "test_path.py would have two things named Path: choose another name"),
    ],
)
def test_new_refuses_bad_names_and_overwrites_nothing(folder, capsys, name, reason):
    Path("kept_router.yaml").write_text("kept")
    assert new(["router", name]) == 2
    assert reason in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["kept_router.yaml"]
    assert Path("kept_router.yaml").read_text() == "kept"


def test_new_class_hides_no_name_that_its_own_file_uses(folder, capsys):
    """The methods of class Launch would make their launches of it."""
    assert new(["family", "launch"]) == 2
    assert "launch.py would have two things named Launch" in capsys.readouterr().err
    assert new(["family", "slots"]) == 0


@BUT_FAMILY
def test_settings_reach_the_class_and_change_the_hash(simulate, started, kind):
    """They are the other keys of its section; the results differ, but not with fast-forward."""
    path = started(kind)
    section = f"{{kind: my_{kind}:{class_name(f'my_{kind}')}, {SETTINGS[kind]}}}"
    logs, option = {}, named(kind, section)
    busy = ("--set", "scheduler.max_running_requests=4", "--set", "scheduler.max_total_tokens=2048")
    for name, options in {"a": (), "b": option, "c": (*option, "--no-fast-forward")}.items():
        ended = simulate("run", path, *busy, *options, "--decisions", f"{name}.jsonl")
        assert ended.code == 0, ended.err
        logs[name] = Path(f"{name}.jsonl").read_bytes()
    assert logs["a"] != logs["b"] == logs["c"]
    plain, other = load_scenario(path), load_scenario(path, [option[1]])
    assert plain.content_hash != other.content_hash
    assert list(user_classes(other.scenario)) == [
        (tuple(KINDS[kind].key.split(".")), f"my_{kind}:{class_name(f'my_{kind}')}")
    ]


@ALL
def test_a_class_is_not_run_with_no_user_code(simulate, started, kind, request):
    """Not even its module; and the source is part of the scenario's hash.

    Nor in a worker process; which kind it is makes no difference to those.
    """
    if kind != "policy":
        request.getfixturevalue("inline")
    path = started(kind)
    before = load_scenario(path).content_hash
    user_family._LOADED.clear()
    Path(f"my_{kind}.py").write_text("open('trap', 'w').close()", encoding="utf-8")
    for command in ("run", "validate", "sweep", "workload", "play"):
        options = ("--set", "sweep={seeds: [1]}") if command == "sweep" else ()
        ended = simulate(command, path, *options, "--no-user-code")
        if command != "workload" or kind in {"workload", "family"}:
            assert ended.code == (1 if command == "sweep" and kind != "family" else 2)
            assert f"my_{kind}.py is not run, because of --no-user-code" in ended.err
    assert not Path("trap").exists()
    if kind != "family":
        assert load_scenario(path).content_hash != before


def test_a_command_without_the_option_runs_no_class(simulate, started):
    """Here the template of an import; its family would be loaded to read it."""
    path = started("family")
    Path("my_family.py").write_text("open('trap', 'w').close()", encoding="utf-8")
    Path("results.jsonl").write_text("{}")
    ended = simulate("import", "results.jsonl", "--template", path, "--out", "out")
    assert ended.code == 2
    with pytest.raises(InputError):
        rebuild(Path("results.jsonl"))
    assert not Path("trap").exists()


@ALL
def test_a_log_of_others_runs_no_class(started, kind):
    """Whichever key of its scenario names one; with --user-code it may."""
    path = started(kind)
    loaded = load_scenario(started("workload" if kind == "workload" else "policy"))
    run = measured_run(loaded, linear_latency())
    meta = {**run.meta, "scenario": yaml.safe_load(Path(path).read_text())}
    write_run_log(Path("run.jsonl"), meta, [*run.steps, *run.requests])
    source = Path(f"my_{kind}.py").read_text()
    Path(f"my_{kind}.py").write_text(f"open('trap', 'w').close()\n{source}", encoding="utf-8")
    sys.modules.pop(f"my_{kind}", None)
    with pytest.raises(InputError, match="is Python code: it runs only with --user-code"):
        rebuild(Path("run.jsonl"))
    assert not Path("trap").exists()
    if kind not in {"router", "latency"}:
        with user_code(wanted=True):
            assert rebuild(Path("run.jsonl")).scenario.name == f"my_{kind}"
        assert Path("trap").exists()


@ALL
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere:Mine", "no module nowhere on Python's path or in "),
        ("mine:Nobody", "no class Nobody in "),
        ("mine:function", "mine:function is no "),
        ("mine:Greedy", "mine:Greedy needs the setting more, and_more"),
        ("mine:Late", "mine:Late raised OSError: too late (mine.py:"),
        ("mine:Empty", "mine:Empty is no "),
        ("a b:C", "must be a name or module:Class, got 'a b:C'"),
    ],
)
def test_a_class_that_is_none_is_refused(refused, started, kind, name, reason):
    """In one line, at the key, before anything is simulated."""
    path = started(kind)
    Path("mine.py").write_text(
        "def function(): pass\n"
        "class Greedy:\n    def __init__(self, config, more, *, and_more): pass\n"
        "class Late:\n    def __init__(self, *a): raise OSError('too late')\n"
        "class Empty:\n    pass\n"
    )
    if name == "mine:Greedy" and kind in {"router", "family"}:
        reason = "mine:Greedy needs the setting config, more, and_more"
    option = named(kind, name)
    line = refused(path, *option)
    key = KINDS[kind].key if kind != "family" else "scheduler"
    assert line.startswith(f"{option[0]} {option[1]}: ") or f": {key}: " in line
    assert reason in line


@BUT_FAMILY
def test_a_setting_that_the_class_does_not_have_is_refused_at_its_key(refused, started, kind):
    path = started(kind)
    key, cls = KINDS[kind].key, f"my_{kind}:{class_name(f'my_{kind}')}"
    data = yaml.safe_load(Path(path).read_text())
    parent = data
    *parts, last = key.split(".")
    for part in parts:
        parent = parent[part]
    parent[last] = {"kind": cls, "colour": "red"}
    Path(path).write_text(json.dumps(data, indent=1))
    line = refused(path)
    assert line.endswith(f": {key}.colour: {cls} has no such setting")
    assert line.startswith(f"{path}:{1 + Path(path).read_text().split('colour')[0].count(chr(10))}")


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_class_that_fails_or_answers_wrongly_is_named(refused, started, kind):
    """Whatever it raises and whatever it returns: one line at the key."""
    method, answer, reason = ANSWERS[kind]
    path = started(kind)
    base = "sim.sglang.policies.policy.CacheBlind" if kind == "policy" else "object"
    busy = ("--set", "scheduler.max_total_tokens=2048")
    called = f"mine:Mine.{method.partition('(')[0]}"
    for body, words in (("1 / 0", "raised ZeroDivisionError: "), (f"return {answer}", reason)):
        sys.modules.pop("mine", None)
        Path("mine.py").write_text(
            f"import sim.sglang.policies.policy\nclass Mine({base}):\n  def {method}:\n    {body}\n"
        )
        line = refused(path, *busy, *named(kind, "mine:Mine"))
        assert called in line
        assert words in line
        assert KINDS[kind].key in line


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self._waiting.append(request)", "1 / 0", "ZeroDivisionError: "),
        ("return SlotsSection", "return dict", "its section must be derived from"),
        ("whole_pages = pool_tokens", "whole_pages = nothing", "NameError: "),
        ("    max_total_tokens: int =", "    max_tokens: int =", "max_tokens: is required"),
    ],
)
def test_a_family_that_fails_is_named(refused, started, old, new, reason):
    """When it is loaded, when the server is built, and in a step."""
    path = started("family")
    source = Path("my_family.py").read_text()
    assert old in source
    Path("my_family.py").write_text(source.replace(old, new))
    line = refused(path)
    assert "my_family:MyFamily " in line or "is required" in line
    assert "scheduler" in line
    assert reason in line


def test_a_rank_that_changes_by_itself_does_not_hang(refused, started):
    path = started("eviction")
    Path("mine.py").write_text(
        "class Mine:\n  calls = 0\n  def rank(self, node):\n    self.calls += 1\n"
        "    return self.calls\n"
    )
    tight = ("--set", "scheduler.max_total_tokens=2048")
    line = refused(path, *tight, *named("eviction", "mine:Mine"))
    assert line.endswith("the rank of a leaf changed although nothing used it")


def test_a_latency_that_cannot_foresee_is_asked_step_by_step(simulate, started):
    """A class that counts its calls: with fast-forward it gets the same calls as without."""
    path = started("latency")
    Path("mine.py").write_text(
        "class Mine:\n  calls = 0\n  def step_ns(self, step):\n    self.calls += 1\n"
        "    return 5_000_000 + self.calls % 7 * 100_000, 0\n"
    )
    for name, options in {"a": (), "b": ("--no-fast-forward",)}.items():
        simulate("run", path, *named("latency", "mine:Mine"), *options, "--decisions", name)
    assert Path("a").read_bytes() == Path("b").read_bytes()


@pytest.mark.parametrize("kind", ["router", "workload", "family"])
def test_a_sweep_with_a_class_runs_in_other_processes(simulate, started, kind):
    path = started(kind)
    sweep = "sweep={scheduler.max_running_requests: [4, 8]}"
    ended = simulate("sweep", path, "--set", sweep, "--jobs", "1", "--out", "out")
    assert ended.code == 0, ended.err
    assert len(json.loads(Path("out/results.json").read_text())["points"]) == 2


def test_a_family_has_no_launch_command_and_no_playground(simulate, started):
    """One line says so. The tables of built-in families do not know it."""
    path = started("family")
    ended = simulate("play", path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(
        ": scheduler.family: the playground knows sglang and vllm, not my_family:MyFamily\n"
    )
    assert set(FAMILIES) == {"sglang", "vllm"}


def test_page_shows_what_new_writes():
    """The examples of the page are the start files."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "plug-in.md").read_text("utf-8")
    for kind in KINDS:
        if kind != "family":
            assert f"## {kind.capitalize()}\n\n```python\n{start_file(kind)}```\n" in page
