"""LLMServingSim's meta.yaml: what was measured, and the bins of the skew correction."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from sim.core.errors import InputError, describe
from sim.core.packed import read_text
from sim.latency.layers.attention import Bins, SkewAxes

NAME = "meta.yaml"
_MAX_BYTES = 1 << 20
# The file's names of the axes, by their names in `SkewAxes`.
_AXES = {"rows": "n", "rate": "skew_rate", "longest": "kv_big", "cached": "kp"}


@dataclass(frozen=True, slots=True)
class SkewFit:
    """The fitted correction of one degree of tensor parallelism.

    Attributes:
        axes: its bins.
        default: the alpha of bins that are not in skew_fit.csv.
    """

    axes: SkewAxes
    default: float


@dataclass(frozen=True, slots=True)
class ServingsimMeta:
    """What a profile's meta.yaml says.

    Attributes:
        model: the model's name on Hugging Face.
        source: device, model and engine in one line.
        skew: the correction for unequal contexts; None: not measured.
    """

    model: str
    source: str
    skew: SkewFit | None


def read_meta(path: Path, tp: int) -> ServingsimMeta:
    """Read a meta.yaml, for one degree of tensor parallelism."""
    data = _Section(_load(path), str(path))
    model, hardware = data.text("model"), data.text("hardware")
    version = data.get("vllm_version")
    engine = f"vLLM {version}, " if version else ""
    source = f"LLMServingSim profile of {model} on {hardware} ({engine}tensor parallel {tp})"
    skew = data.section("skew_fit") if data.get("skew_fit") is not None else None
    if skew is None or not skew.get("enabled"):
        return ServingsimMeta(model, source, None)
    return ServingsimMeta(model, source, _skew_fit(skew, tp))


class _Section:
    """A mapping of the file; its errors name the file and the key."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"{where}: must be a mapping")
        self._data = data
        self._where = where

    def get(self, key: str) -> object:
        return self._data.get(key)

    def section(self, key: str) -> "_Section":
        return _Section(self._data.get(key), f"{self._where}: {key}")

    def numbered(self, number: int) -> "_Section":
        """The section under a key that is a number, quoted or not."""
        data = self._data.get(number, self._data.get(str(number)))
        return _Section(data, f"{self._where}: {number}")

    def text(self, key: str) -> str:
        value = self._data.get(key)
        if not isinstance(value, str):
            raise self.error(key, f"must be text, got {describe(value)}")
        return value

    def number(self, key: str) -> float:
        value = self._data.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, f"must be a number, got {describe(value)}")
        return float(value)

    def error(self, key: str, reason: str) -> InputError:
        return InputError(f"{self._where}: {key}: {reason}")


def _skew_fit(skew: _Section, tp: int) -> SkewFit:
    fit = skew.section("per_tp").numbered(tp)
    # A degree of tensor parallelism may have bins of its own.
    holder = fit if fit.get("bucket_axes") is not None else skew
    bins = holder.section("bucket_axes")
    axes = {ours: _bins(bins, theirs) for ours, theirs in _AXES.items()}
    return SkewFit(SkewAxes(**axes), fit.number("alpha_default"))


def _bins(section: _Section, name: str) -> Bins:
    edges, labels = section.get(f"{name}_bins"), section.get(f"{name}_labels")
    if not isinstance(labels, list) or not labels:
        raise section.error(f"{name}_labels", f"must be a list of labels, got {describe(labels)}")
    if (
        not isinstance(edges, list)
        or not all(isinstance(edge, int | float) for edge in edges)
        or edges != sorted(edges)
        or len(edges) != len(labels) + 1
    ):
        reason = f"must be {len(labels) + 1} rising numbers, got {describe(edges)}"
        raise section.error(f"{name}_bins", reason)
    return Bins(tuple(map(float, edges[1:])), tuple(map(str, labels)))


class _Loader(yaml.SafeLoader):
    """Refuses aliases: with them a kilobyte can describe a billion values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)


def _load(path: Path) -> object:
    try:
        return yaml.load(read_text(path, _MAX_BYTES), Loader=_Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"{path}: not YAML") from None
