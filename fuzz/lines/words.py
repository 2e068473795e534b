"""Command lines: options of all commands with any values, doubled, without a value, misspelt."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer

from calibrate.cli import PROGRAM as CALIBRATE
from fuzz.cases import FuzzCase
from fuzz.mutate import VALUES, known_keys
from realrun.cli import PROGRAM as REALRUN
from sim.cli import PROGRAM as SIMULATE
from sim.command_line import Program

LINE = "line.json"
_PROGRAMS = {"simulate": SIMULATE, "calibrate": CALIBRATE, "realrun": REALRUN}
# Without a limit on a latency: a plan takes seconds.
_QUESTION = "--model qwen2.5-0.5b --hardware h100-sxm --rate-rps 1 --prompt-tokens 9"
# Command lines that end quickly, and the files that each option may name beside hostile ones.
_GOOD = (
    "simulate run base.yaml --format json",
    "simulate run vllm.yaml --out out --decisions d.jsonl.gz --requests r.csv --perfetto p.json",
    "simulate run mix.yaml --timeline t.html --check --no-fast-forward",
    "simulate validate base.yaml",
    "simulate validate tune.yaml --set seed=4",
    "simulate workload base.yaml --format json",
    "simulate workload azure.csv --from azure",
    "simulate import sglang.json --out imported",
    "simulate import vllm.json --out imported --from vllm-bench --template base.yaml",
    "simulate compare decisions.jsonl base.yaml",
    "simulate compare other.jsonl decisions.jsonl",
    "simulate timeline decisions.jsonl --out t.html --perfetto t.json",
    # Their processes would take seconds to start.
    "simulate sweep sweep.yaml --out nowhere/s --jobs 1",
    "simulate report sweep --out report",
    "simulate tune tune.yaml --out nowhere/t --jobs 1",
    # Without a section `plan`: it ends when its options are read.
    "simulate plan base.yaml --jobs 1 --out p",
    f"simulate plan {_QUESTION} --tp 3 --jobs 1",
    "simulate serve base.yaml --speed 10",
    "simulate play base.yaml --no-open",
    "calibrate fit run.jsonl -o fitted.json",
    "calibrate fit vllm.json --out fitted --scenario base.yaml",
    "calibrate fit measured.jsonl --scenario serial.yaml -o fitted.json",
    "calibrate validate base.yaml measured.jsonl --format json",
    "calibrate validate example/tiny-cpu run.jsonl --any-fingerprint",
    "calibrate show profile.json",
    "realrun replay base.yaml --url http://127.0.0.1:TAKEN --out out",
    "realrun run served.yaml --device nowhere --log log.jsonl.gz",
    "realrun check --model tiny --device nowhere",
    "realrun serve served.yaml --device nowhere",
    "realrun profile --model tiny --budget-s 1 --out points.jsonl --device nowhere",
    "realrun kernels --device nowhere",
    "realrun runs served.yaml --device nowhere",
)  # fmt: skip
# Appended last, so that nothing listens, or computes on a device, for ever.
_ENDING = {
    ("simulate", "serve"): ("--port", "TAKEN"),
    ("simulate", "play"): ("--port", "TAKEN", "--no-open"),
    ("simulate", "demo"): ("--no-such-option",),
    ("realrun", "suite"): ("--no-such-option",),
}
_FILES = ("base.yaml", "vllm.yaml", "decisions.jsonl", "run.jsonl", "measured.jsonl", "sglang.json",
          "run", "sweep", "model", "nowhere", "nowhere/x", "log.txt", "-", ".", "", "out", "\udcff",
          "/dev/null", "/dev/full", "base.yaml/x", "a" * 300, "r.csv", "p.json",
          "d.jsonl.gz")  # fmt: skip
_SETS = ("=", "a", "a=b=c", "=1", "workload.=1", ".=1", "seed=", "seed=[", "workload={", "x.y.z=1",
         "seed=!!python/object/apply:os.system ['x']", "workload.num_requests=1e3", "seed=0x10",
         "workload.parts.0.tenant=x", "seed=\u0661", "scheduler=null")  # fmt: skip


def called(
    programs: Mapping[str, Callable[[Sequence[str]], int]],
) -> Callable[[Sequence[str]], int]:
    """A program that calls the command line in a file."""

    def call(arguments: Sequence[str]) -> int:
        [name] = arguments
        program, *words = json.loads(Path(name).read_text(encoding="utf-8"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            return programs[program]([word.replace("TAKEN", port) for word in words])

    return call


def hostile_line(_old: bytes, rng: Random) -> bytes:
    """A command line that is good but for one to four words."""
    program, *words = rng.choice(_GOOD).split()
    name = words[0]
    if rng.random() < 0.15:
        name = rng.choice(_PROGRAMS[program].commands)
        words = [name, *words[1:]]
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_CHANGES)(words, _options(program, name), rng)
    ending = () if "--help" in words else _ENDING.get((program, name), ())
    if words[:1] == [name]:
        words += ending
    # A word of a command line has no zero bytes, as the system passes it.
    return json.dumps([program, *(word.replace("\0", "") for word in words)], indent=1).encode()


@cache
def _options(program: str, name: str) -> list[tuple[str, str]]:
    """The options of a command, and the type of each."""
    made: Program = _PROGRAMS[program]
    app: Any = typer.main.get_command(made.app([name] if name in made.commands else ()))
    command = app.commands.get(name, app)
    return list(_each(command.params))


def _each(params: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for param in params:
        for option in (*param.opts, *param.secondary_opts):
            if option.startswith("-"):
                descriptor = getattr(param, "type_descriptor", None)
                kind = getattr(getattr(descriptor, "annotation", str), "__name__", "str")
                yield option, "flag" if getattr(param, "is_flag", False) else kind


def _value(option: str, kind: str, rng: Random) -> str:
    if option == "--set":
        key = rng.choice(known_keys())
        above = rng.choice(("", "scheduler.", "workload.", "latency.", "a.b."))
        value = str(rng.choice([each for each in VALUES if _is_small(each)]))
        return rng.choice((f"{above}{key}={value}", rng.choice(_SETS)))
    if option == "--jobs":
        return rng.choice(("0", "-1", "1", "x", "1.5", "1e1"))
    numbers: dict[str, Sequence[str]] = {
        "int": ("0", "1", "-1", "7", "1e3", "0x10", "2147483648", "9" * 30, "\u0661", "1_0"),
        "float": ("0", "0.5", "-1", "nan", "inf", "1e999", "1e-400", "-0.0", "1_0", "\u0661"),
    }
    likely = numbers.get(kind, _FILES)
    texts = [str(each) for each in VALUES if _is_small(each)]
    return rng.choice((*likely, rng.choice(texts)))


def _is_small(value: object) -> bool:
    """Not a number of requests that would take minutes."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number or not 1_000 < float(str(value)) < 1e12


Options = Sequence[tuple[str, str]]


def _add(words: list[str], options: Options, rng: Random) -> None:
    """An option with a value, or without; perhaps one that is there already."""
    option, kind = rng.choice(options or [("--help", "flag")])
    added = [option] if kind == "flag" and rng.random() < 0.8 else _spelt(option, kind, rng)
    at = rng.randint(1, len(words))
    words[at:at] = added


def _spelt(option: str, kind: str, rng: Random) -> list[str]:
    value = _value(option, kind, rng)
    return rng.choice(([option, value], [option, value], [f"{option}={value}"], [option]))


def _double(words: list[str], _options: Options, rng: Random) -> None:
    at = rng.randrange(len(words))
    words[at:at] = words[at : at + rng.choice((1, 2))]


def _drop(words: list[str], _options: Options, rng: Random) -> None:
    del words[rng.randrange(len(words))]
    if not words:
        words.append("--version")


def _replace(words: list[str], _options: Options, rng: Random) -> None:
    words[rng.randrange(len(words))] = rng.choice(_FILES)


def _misspell(words: list[str], _options: Options, rng: Random) -> None:
    at = rng.randrange(len(words))
    word = words[at]
    words[at] = rng.choice((word[:-1], word.upper(), f"-{word}", f"{word}x", f"{word}=", word[1:]))


def _extra(words: list[str], _options: Options, rng: Random) -> None:
    extras = ("--", "-", "--help", "-h", "--version", "-x", "--x", "---", "-o", "", " ", "\u202e")
    words.insert(rng.randint(0, len(words)), rng.choice((*extras, *_FILES)))


def _swap(words: list[str], _options: Options, rng: Random) -> None:
    one, other = rng.randrange(len(words)), rng.randrange(len(words))
    words[one], words[other] = words[other], words[one]


_CHANGES: tuple[Callable[[list[str], Options, Random], None], ...] = (
    *(_add, _add, _add, _add, _double, _drop, _replace, _replace, _misspell, _extra, _swap),
)


def line_cases() -> list[FuzzCase]:
    return [
        FuzzCase(
            "command line", LINE, hostile_line, (f"called {LINE}",), 24, group="command lines",
            bytes_share=0,
        )
    ]  # fmt: skip
