"""Command lines of other programs: words, variables, and flags in all their spellings."""

import pytest

from sim.core.errors import InputError
from sim.core.flags import Flags, plain_value, split_command

FLAGS = Flags(
    options={"num-prompts": "num", "input-len": "length", "seed": "seed"},
    switches={"flush-cache": ("flush", True), "no-cache": ("cache", False)},
    lists={"goodput": "goodput"},
    ignored=("port", "host"),
)


def test_command_is_split_as_by_a_shell():
    """Variables first; a line may go on after a backslash; names may be paths."""
    command = split_command("A=1 B='x y' python -m \\\n bin/prog \"a b\" --c", "--server")
    assert command.variables == {"A": "1", "B": "x y"}
    assert command.after(["prog"]) == ["a b", "--c"]
    assert command.after(["rog"]) is None


@pytest.mark.parametrize(("text", "reason"), [("a 'b", "no closing quotation"), ("A=1", "no comm")])
def test_command_that_cannot_be_split_is_one_line(text, reason):
    """It names the option."""
    with pytest.raises(InputError, match=f"--command: .*{reason}"):
        split_command(text, "--command")


def test_flags_are_read_in_every_spelling():
    """With `=`, with underscores, shortened; what is not known keeps its values."""
    words = ["model", "--num_prompts=5", "--input", "-3", "--flush-cache", "--no-cache"]
    words += ["--goodput", "a:1", "b:2", "--port", "1", "--lora", "x", "y", "-z"]
    read = FLAGS.read(words, "--command")
    assert read.values == {
        "num": "5", "length": "-3", "flush": True, "cache": False, "goodput": ["a:1", "b:2"],
    }  # fmt: skip
    assert read.positional == ("model",)
    assert (read.ignored, read.unknown) == (("--port",), ("--lora x y", "-z"))


def test_flag_without_its_value_is_refused():
    """The next flag is no value."""
    with pytest.raises(InputError, match="--seed: has no value"):
        FLAGS.read(["--seed", "--port", "1"], "--command")


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-1", -1), ("0.5", 0.5), ("1.0", 1.0), ("inf", "inf"), ("True", True)],
)
def test_plain_value(text, value):
    """Whole numbers stay whole."""
    found = plain_value(text)
    assert (found, type(found)) == (value, type(value))
