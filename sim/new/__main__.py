"""`python -m sim.new KIND NAME`: writes a class of one's own to begin with, a test, a scenario."""

import ast
import keyword
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sim.command_line import new_app, run_app
from sim.commands.output import print_line
from sim.core.errors import InputError, shorten
from sim.core.files import atomic_path
from sim.scenario.strict_yaml import yaml_text

_BASE: Mapping[str, Any] = {
    "seed": 1,
    "latency": {
        "kind": "linear",
        "step_s": 0.005,
        "per_prefill_token_s": 4e-5,
        "per_decode_request_s": 5e-5,
        "per_context_token_s": 2e-8,
    },
    "workload": {
        "kind": "synthetic",
        "num_requests": 200,
        "arrivals": {"kind": "poisson", "rate_rps": 50},
        "prompt_tokens": {"kind": "uniform", "min": 20, "max": 300},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
        "prefixes": {
            "groups": 6,
            "tokens": {"kind": "constant", "value": 320},
            "share_probability": 0.8,
        },
    },
    "scheduler": {
        "family": "sglang",
        "schedule_policy": "lpm",
        "page_size": 16,
        "max_total_tokens": 8192,
        "max_running_requests": 16,
        "chunked_prefill_size": 512,
        "context_length": 4096,
    },
}
_TENANT = {
    **_BASE["workload"],
    "num_requests": 100,
    "arrivals": {"kind": "poisson", "rate_rps": 30},
}
_TENANTS = {
    "kind": "mix",
    "parts": [{"tenant": name, "workload": deepcopy(_TENANT)} for name in ("red", "blue", "green")],
}


class StartKind(NamedTuple):
    """A kind of class that a user may write.

    Attributes:
        start: what `python -m sim.new` calls it; see `start_file`.
        cls: the name of the class in the text that a new file begins as.
        does: what its class does, for the list of kinds.
        key: the key of a scenario that names the class.
        suite: the contract in `sim.testing.contracts` that its test runs.
        changes: sections of the scenario that differ from `_BASE`, besides the key.
    """

    start: str
    cls: str
    does: str
    key: str
    suite: str
    changes: Mapping[str, Any] = {}

    def scenario(self, module: str, cls: str) -> dict[str, Any]:
        """A small scenario that names the class."""
        data = deepcopy({"name": module, **_BASE, **self.changes})
        section, _, key = self.key.partition(".")
        name = f"{module}:{cls}"
        data[section] = {**data[section], key: name} if key else name
        return data


KINDS: Mapping[str, StartKind] = {
    kind.start: kind
    for kind in (
        StartKind(
            "policy", "ShortestPromptFirst", "orders the waiting queue",
            "scheduler.schedule_policy", "SchedulePolicyContract",
        ),
        StartKind(
            "fairness", "OldestFirst", "changes a policy's order, so that no request starves",
            "scheduler.fairness", "FairnessContract",
        ),
        StartKind(
            "admission", "FewPrompts", "selects the requests that a prefill pass considers",
            "scheduler.admission", "AdmissionContract",
        ),
        StartKind(
            "eviction", "FarEndsFirst", "says what the prefix cache evicts first",
            "scheduler.radix_eviction_policy", "EvictionContract",
        ),
        StartKind(
            "router", "TenantHome", "chooses the replica of each request",
            "router", "RouterContract", {"replicas": 3, "workload": _TENANTS},
        ),
        StartKind("latency", "ReadsAndComputes", "says how long a step takes", "latency",
             "LatencyModelContract"),
        StartKind("workload", "Bursts", "makes the traffic", "workload", "WorkloadContract"),
        StartKind(
            "family", "Slots", "schedules: a whole server's rules",
            "scheduler.family", "SchedulerContract",
            {"scheduler": {"family": "", "max_total_tokens": 8192, "max_running_requests": 16}},
        ),
    )
}  # fmt: skip


_SIMULATION = '''

def test_{module}_in_a_simulation():
    """Every request is served, and fast-forward changes nothing."""
    log = simulate_both_ways(Path(__file__).with_name("{module}.yaml"))
    assert set(log.requests.status) == {{"finished"}}
'''
_TEST = '''\
"""Tests of {module}.py: python -m pytest test_{module}.py."""

from pathlib import Path

from {module} import {cls}
from sim.testing.contracts import {suite}
from sim.testing.user_classes import simulate_both_ways

Test{cls} = {suite}.of({cls})
'''
_FAMILY_TEST = '''\
"""Tests of {module}.py: python -m pytest test_{module}.py."""

from pathlib import Path

import pytest

from sim.testing.contracts import {suite}
from sim.testing.user_classes import load_family, simulate_both_ways

NAME = "{module}:{cls}"


class Test{cls}({suite}):
    """The contract of every family's scheduler, with and without overlap."""

    @pytest.fixture(params=[False, True], ids=["normal", "overlap"])
    def make_config(self, request):
        section = load_family(NAME, Path(__file__).parent).section()
        return lambda pool_tokens, page_size, most_rows: section(
            family=NAME,
            page_size=page_size,
            max_total_tokens=pool_tokens,
            max_running_requests=most_rows,
            disable_overlap_schedule=request.param,
        ).config(pool_tokens)
'''


def class_name(module: str) -> str:
    """`MyRouter` for `my_router`."""
    return "".join(part[:1].upper() + part[1:] for part in module.split("_"))


def check_module_name(name: str) -> None:
    """Refuse a name that cannot be imported, or that means another module."""
    if not name.isidentifier() or keyword.iskeyword(name) or not class_name(name).isidentifier():
        shown = shorten(repr(name))
        raise InputError(f"NAME: {shown} is no name of a Python module, such as my_router")
    if not Path(f"{name}.py").exists() and find_spec(name) is not None:
        raise InputError(f"NAME: there is a module {name} already: choose another name")


def start_file(start: str) -> str:
    """The text that a new file of a kind begins as."""
    of_family = start == "family"
    file = files("sim.new.starts").joinpath("family.py" if of_family else "small.py")
    text = file.read_text(encoding="utf-8")
    if of_family:
        return text
    return text.partition(f"# ---- {start}\n")[2].partition("# ----")[0].rstrip() + "\n"


def start_texts(kind: StartKind, module: str) -> dict[str, str]:
    """The texts of the three files, by name."""
    cls = class_name(module)
    start = start_file(kind.start)
    test = _FAMILY_TEST if kind.start == "family" else _TEST
    scenario = yaml_text(kind.scenario(module, cls))
    return {
        f"{module}.py": start.replace(f"class {kind.cls}(", f"class {cls}(").replace(
            f"class {kind.cls}:", f"class {cls}:"
        ),
        f"test_{module}.py": (test + _SIMULATION).format(module=module, cls=cls, suite=kind.suite),
        f"{module}.yaml": f"# simulate run {module}.yaml\n{scenario}",
    }


def _names_in(text: str) -> list[str]:
    """The names of imports and of classes in a module's text, once for each time."""
    nodes = list(ast.walk(ast.parse(text)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    return [*classes, *(alias.name for node in imports for alias in node.names)]


def write_start(kind: StartKind, module: str) -> list[str]:
    """Write the files; returns their names."""
    check_module_name(module)
    texts, cls = start_texts(kind, module), class_name(module)
    for name, text in texts.items():
        if name.endswith(".py") and _names_in(text).count(cls) > 1:
            raise InputError(f"NAME: {name} would have two things named {cls}: choose another name")
    for name in texts:
        if Path(name).exists() or Path(name).is_symlink():
            raise InputError(f"{name}: is there already, and is not overwritten")
    with ExitStack() as opened:
        for name, text in texts.items():
            opened.enter_context(atomic_path(Path(name))).write_text(text, encoding="utf-8")
    return list(texts)


Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the module, such as my_router")]

app = new_app(
    "Write a class of your own to begin with: NAME.py, its test, and a scenario that names it."
    " See docs/how-to/plug-in.md."
)


def _command(kind: StartKind) -> Callable[[str], None]:
    def write(name: Name) -> None:
        written = write_start(kind, name)
        print_line(f"wrote {', '.join(written)}. Next:")
        print_line(f"  python -m pytest test_{name}.py")
        print_line(f"  simulate run {name}.yaml")

    return write


for kind_name, each in KINDS.items():
    app.command(kind_name, help=f"A class that {each.does}: {each.key}.")(_command(each))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "python -m sim.new", argv)


if __name__ == "__main__":
    sys.exit(main())
