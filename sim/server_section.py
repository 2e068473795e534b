"""What the `scheduler` sections of all families have in common."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import ValidationError

from sim.core.errors import InputError
from sim.engine.server_config import ServerConfig
from sim.latency.loading import LoadTimes
from sim.latency.shapes import ModelShape
from sim.strict_model import StrictModel

# Makes an error about a key of the section out of a reason.
Fail = Callable[[str], InputError]


class UserCode(NamedTuple):
    """A class of the user's own that a section names.

    Attributes:
        key: of the section.
        name: `module:Class`.
        hashed_as: what the hash of its source is called in the scenario's canonical form.
    """

    key: str
    name: str
    hashed_as: str


class ServerSection(StrictModel):
    """Settings of a server as a scenario gives them; a base class."""

    if TYPE_CHECKING:
        # Keys of the section, or properties: each family says which.

        @property
        def family(self) -> str:
            """The family's name."""
            ...

        @property
        def page_size(self) -> int:
            """Tokens a page."""
            ...

    @property
    def max_rows(self) -> int:
        """Most requests that run at a time."""
        raise NotImplementedError

    @property
    def pool_tokens(self) -> int | None:
        """Tokens of the pool, if the section says how many."""
        raise NotImplementedError

    @property
    def pool_key(self) -> str:
        """The key that gives the size of the pool."""
        raise NotImplementedError

    @property
    def page_key(self) -> str:
        """The key that gives the tokens of a page."""
        raise NotImplementedError

    @property
    def memory_share(self) -> tuple[str, float]:
        """The key that says how much memory there is for weights and KV, and its value."""
        raise NotImplementedError

    @property
    def num_pages_kept_back(self) -> int:
        """Pages of a derived pool that no request gets."""
        return 0

    @property
    def longest_request(self) -> tuple[str, int | None]:
        """The key that limits a request's tokens, and its value."""
        raise NotImplementedError

    def with_longest_request(self, num_tokens: int) -> Self:
        """The section where it says how long a request may be; else with this limit."""
        return self

    @property
    def runner_keys(self) -> tuple[str, ...]:
        """Keys that a real runner is made for: a warm one serves no other values."""
        raise NotImplementedError

    def check_real_run(self) -> tuple[str, str] | None:
        """A key that the real runner cannot serve, and why; None: it can serve the section."""
        return None

    def check_model(self, *, is_known: bool) -> None:
        """Verify that the section does without what only the scenario's model could tell.

        Raises:
            ValueError: it does not, and the scenario names no model.
        """

    def load_times(self, model: ModelShape | None, num_devices: int) -> LoadTimes | None:
        """How long KV takes from host memory to the device; None: there is no host memory."""
        return None

    @property
    def user_code(self) -> UserCode | None:
        """The user's own class that the section names, if any."""
        return None

    def config(self, pool_tokens: int) -> ServerConfig:
        """The server's settings with a pool of `pool_tokens` tokens, without user code.

        Raises:
            InputError: `scheduler.KEY: reason`, where a real server would refuse to start.
        """
        raise NotImplementedError

    def with_user_code(self, config: Any, base_dir: Path, fail: Fail) -> Any:
        """The settings with the user's own class loaded.

        Args:
            config: made by `config`.
            base_dir: the scenario's folder.
            fail: makes an error about the key of `user_code` out of a reason.

        Raises:
            InputError: from `fail`: the class cannot be loaded.
        """
        return config


class ImportedSection(NamedTuple):
    """A valid section for a measured run, and what its reader should know.

    Attributes:
        settings: keys and values, as YAML has them.
        hints: a sentence or two each.
    """

    settings: dict[str, Any]
    hints: list[str]


def accepted_settings(
    section: type[ServerSection], fixed: Mapping[str, Any], told: Mapping[str, object]
) -> ImportedSection:
    """Those settings of a real server that the section can have, beside `fixed` ones.

    Returns:
        The settings, and a hint about those that were refused.
    """
    accepted: dict[str, Any] = dict(fixed)
    refused: dict[str, object] = {}
    for key, value in told.items():
        plain = float(value) if isinstance(value, Decimal) else value
        try:
            section.model_validate({**accepted, key: plain})
        except ValidationError:
            refused[key] = value
        else:
            accepted[key] = plain
    hints = [f"Told, but not simulated: {setting_pairs(refused)}."] if refused else []
    return ImportedSection(accepted, hints)


def setting_pairs(settings: Mapping[str, object]) -> str:
    """`page_size 16, max_running_requests 64`."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())
