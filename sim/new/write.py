"""Writes a start file, its test and a scenario into the current folder."""

import keyword
from contextlib import ExitStack
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.core.messages import shorten
from sim.new.kinds import StartKind
from sim.scenario.yaml_writer import yaml_text

_TEST = '''\
"""Tests of {module}.py: python -m pytest test_{module}.py."""

from pathlib import Path

from {module} import {cls}
from sim.testing.contracts import {suite}
from sim.testing.user_classes import simulate_both_ways

Test{cls} = {suite}.of({cls})


def test_{module}_in_a_simulation():
    """Every request is served, and fast-forward changes nothing."""
    log = simulate_both_ways(Path(__file__).with_name("{module}.yaml"))
    assert set(log.requests.status) == {{"finished"}}
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


def test_{module}_in_a_simulation():
    """Every request is served, and fast-forward changes nothing."""
    log = simulate_both_ways(Path(__file__).with_name("{module}.yaml"))
    assert set(log.requests.status) == {{"finished"}}
'''


def class_name(module: str) -> str:
    """`MyRouter` for `my_router`."""
    return "".join(part[:1].upper() + part[1:] for part in module.split("_"))


def check_module_name(name: str) -> None:
    """Refuse a name that cannot be imported, or that means another module.

    Raises:
        InputError: the name is no good; the message says why.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not class_name(name).isidentifier():
        shown = shorten(repr(name))
        raise InputError(f"NAME: {shown} is no name of a Python module, such as my_router")
    if not Path(f"{name}.py").exists() and find_spec(name) is not None:
        raise InputError(f"NAME: there is a module {name} already: choose another name")


def start_texts(kind: StartKind, module: str) -> dict[str, str]:
    """The texts of the three files, by name."""
    cls = class_name(module)
    start = files("sim.new.starts").joinpath(f"{kind.start}.py").read_text(encoding="utf-8")
    test = _FAMILY_TEST if kind.start == "family" else _TEST
    scenario = yaml_text(kind.scenario(module, cls))
    return {
        f"{module}.py": start.replace(f"class {kind.cls}(", f"class {cls}(").replace(
            f"class {kind.cls}:", f"class {cls}:"
        ),
        f"test_{module}.py": test.format(module=module, cls=cls, suite=kind.suite),
        f"{module}.yaml": f"# simulate run {module}.yaml\n{scenario}",
    }


def write_start(kind: StartKind, module: str) -> list[str]:
    """Write the files; returns their names.

    Raises:
        InputError: the name is no good, a file is there already, or cannot be written.
    """
    check_module_name(module)
    texts = start_texts(kind, module)
    for name in texts:
        if Path(name).exists() or Path(name).is_symlink():
            raise InputError(f"{name}: is there already, and is not overwritten")
    with ExitStack() as opened:
        for name, text in texts.items():
            opened.enter_context(atomic_path(Path(name))).write_text(text, encoding="utf-8")
    return list(texts)
