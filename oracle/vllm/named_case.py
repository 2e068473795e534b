"""What a named case of vLLM is."""

from dataclasses import dataclass, field

from oracle.vllm.load import Config, Load

OLD, NEW = ("0.19.0",), ("0.33.0",)
BOTH = OLD + NEW


@dataclass(frozen=True)
class Named:
    """A case: its purpose, settings other than the usual ones, its load, and for which versions.

    With a role, `handover` is the mean time of a transfer in seconds, and how many fail.
    """

    about: str
    load: Load
    config: Config = field(default_factory=dict)
    seed: int = 0
    versions: tuple[str, ...] = BOTH
    handover: tuple[float, float] = (0.0, 0.0)
