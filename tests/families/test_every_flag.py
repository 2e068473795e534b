"""Every flag of the engines' parsers is a key, or is named with what it does to the answer.

`flags/` lists the flags that the parsers of vLLM 0.33.0 and SGLang 0.5.23 take: a name, and whether
it is followed by one value, none (a switch) or several (a list).
"""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.core.flags import Effect, split_command
from sim.families import FAMILIES
from sim.family.launch_command import Others

OF_SGLANG, OF_VLLM = (Others.of(package).flags for package in ("sim.sglang", "sim.vllm"))
LISTS = {"vllm": "vllm-0.33.0.txt", "sglang": "sglang-0.5.23.txt"}
PROGRAMS = {"vllm": "vllm serve m", "sglang": "python -m sglang.launch_server --model-path m"}
WORDS = {"value": ["1"], "switch": [], "list": ["a", "b"]}


def every_flag(family):
    lines = (Path(__file__).parent / "flags" / LISTS[family]).read_text().splitlines()
    return [line.split() for line in lines]


def read(family, *words):
    command = split_command(PROGRAMS[family], "--server")
    command.words.extend(words)
    return FAMILIES[family].read_launch(command, "h100_sxm")


@pytest.mark.parametrize("family", LISTS)
def test_every_flag_is_known(family):
    """None is unknown, none is shortened by mistake; one that is refused says why on one line."""
    unknown, refusals = [], []
    for name, kind in every_flag(family):
        if name == "config":
            continue  # The command line reads its file: tests/families/test_written_commands.py.
        try:
            unknown += read(family, f"--{name}", *WORDS[kind]).unknown
        except InputError as error:
            refusals.append(str(error))
    assert unknown == []
    assert all(text.startswith("--server: --") and "\n" not in text for text in refusals)
    assert len(refusals) < 25


@pytest.mark.parametrize(("family", "groups"), [("vllm", OF_VLLM), ("sglang", OF_SGLANG)])
def test_each_flag_has_one_effect_with_a_reason(family, groups):
    names = [name for group in groups for name in group.names]
    assert len(names) == len(set(names))
    assert all(
        group.reason for group in groups if group.effect in (Effect.NOT_SIMULATED, Effect.REFUSED)
    )


@pytest.mark.parametrize(("family", "groups"), [("vllm", OF_VLLM), ("sglang", OF_SGLANG)])
def test_values_are_as_many_as_the_parser_takes(family, groups):
    """Otherwise the model behind a flag would be taken for its value."""
    kinds = dict(every_flag(family))
    for group in groups:
        for kind, names in zip(WORDS, (group.values, group.switches, group.lists), strict=True):
            assert {name: kinds.get(name, kind) for name in names} == dict.fromkeys(names, kind)


def test_a_switch_that_is_off_changes_nothing():
    found = read("vllm", "--no-enable-lora", "--disable-eplb", "--no-enforce-eager")
    assert found.ignored == ("--no-enable-lora", "--disable-eplb", "--no-enforce-eager")
    assert not any("enforce" in note or "lora" in note for note in found.notes)


def test_what_a_flag_does_is_said():
    """Speed flags in one note; others by reason; one that makes another server is refused."""
    found = read("sglang", "--attention-backend", "fa3", "--enable-symm-mem", "--dcp-size", "8")
    time, decisions = (note for note in found.notes if note.startswith(("--attention", "--dcp")))
    assert time == (
        "--attention-backend fa3, --enable-symm-mem: changes only how long steps take, which"
        " latency does not know"
    )
    assert decisions.startswith("--dcp-size 8: not simulated: context parallelism")
    with pytest.raises(InputError, match="--is-embedding: cannot be simulated: embeds"):
        read("sglang", "--is-embedding")
