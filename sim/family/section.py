"""The base class of every family's section `scheduler`."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ValidationError

from sim.core.errors import InputError, describe, shorten
from sim.engine.server_config import BOTH, ServerConfig
from sim.engine.store import StoreSettings
from sim.latency.wrappers import LoadTimes
from sim.user.objects import FailAt, names_class
from sim.validation import StrictModel

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape


class Drafts(NamedTuple):
    """Speculative decoding.

    Attributes:
        method: the server's name for the way drafts are made.
        num_tokens: draft tokens of a row in a step.
        drafter: what makes the drafts: a `layer` for each draft token, a `model`, or `nothing` that
            takes time.
        lookup: tokens of the shortest and of the longest n-gram that is looked up.
        model: the drafter's name; None: it has none.
        model_key: the key that says so, for messages.
    """

    method: str
    num_tokens: int
    drafter: Literal["nothing", "layer", "model"]
    lookup: tuple[int, int] = (5, 5)
    model: str | None = None
    model_key: tuple[str, ...] = ("scheduler", "speculative_config", "model")


class MemoryForKv(NamedTuple):
    """Memory for KV on each GPU.

    Attributes:
        num_bytes: how much; with several stages, as if each had all layers.
        tp: GPUs that share a stage.
        num_stages: stages of the pipeline; 1: there is none.
    """

    num_bytes: float
    tp: int
    num_stages: int = 1


class ServerSection(StrictModel):
    """Base class: the settings of a server in a scenario."""

    if TYPE_CHECKING:
        # In a family's section these are fields or properties.

        @property
        def family(self) -> str:
            """The family's name."""
            ...

        @property
        def page_size(self) -> int:
            """Tokens in a page."""
            ...

    @property
    def max_rows(self) -> int:
        """Largest number of requests that run at a time."""
        raise NotImplementedError

    @property
    def max_step_tokens(self) -> int:
        """Largest number of new tokens of a step, for which the engine reserves memory."""
        raise NotImplementedError

    @property
    def pool_tokens(self) -> int | None:
        """Tokens of the pool; None if the section does not set them."""
        raise NotImplementedError

    @property
    def pool_key(self) -> str:
        """The key that sets the size of the pool."""
        raise NotImplementedError

    def pool_setting(self, num_tokens: int) -> int:
        """The value of `pool_key` for a pool of `num_tokens` tokens, those kept back included."""
        return num_tokens

    @property
    def page_key(self) -> str:
        """The key that sets the tokens in a page."""
        return "page_size"

    @property
    def sends_whole_pages(self) -> bool:
        """Whether prefill and decode servers need pages of one size."""
        return False

    @property
    def memory_share(self) -> tuple[str, float]:
        """The key that sets the share of memory for weights and KV, and its value."""
        raise NotImplementedError

    @property
    def kv_cache_format(self) -> str | None:
        """`bfloat16` or `fp8`: elements of the KV cache. None: as the checkpoint says."""
        return None

    @property
    def state_element_bytes(self) -> int | None:
        """Bytes of an element of the states of linear attention. None: as the checkpoint says."""
        return None

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Numbers of decode rows that CUDA graphs were captured for; empty: not given."""
        return ()

    @property
    def prefill_graph_tokens(self) -> int:
        """New tokens of the largest step with prefill rows that runs in CUDA graphs; 0: none."""
        return 0

    @property
    def drafts(self) -> Drafts | None:
        """Speculative decoding; None: it is off."""
        return None

    def window_share(self, model: "ModelShape") -> float | None:
        """Tokens of the pool of layers with windows, as a share of the other layers' pool.

        None: there is no such pool; a sequence keeps at most a window in these layers.
        """
        return None

    def tokens_in(self, model: "ModelShape | None", free: MemoryForKv) -> int | None:
        """KV tokens that fit into a GPU, if the family counts them in a way of its own.

        `model` is None if its shape is not known; `free` is what weights and the engine leave.

        Returns None: as `sim.latency.shapes` counts them.

        Raises InputError: the size of the pool must be given.
        """
        return None

    @property
    def num_pages_kept_back(self) -> int:
        """Pages that the server keeps for itself when the size of the pool is derived."""
        return 0

    @property
    def longest_request(self) -> tuple[str, int | None]:
        """The key that limits a request's tokens, and its value; None: the pool alone does."""
        return self.pool_key, None

    def with_longest_request(self, num_tokens: int) -> Self:
        """The section itself if it limits a request's tokens; else a copy with this limit."""
        return self

    @property
    def runner_keys(self) -> tuple[str, ...]:
        """Keys whose values cannot change while a real runner stays loaded."""
        return self.page_key, self.pool_key

    def check_real_run(self) -> tuple[str, str] | None:
        """A key whose value the real runner does not support, and the reason; None if all fit."""
        return None

    def check_model(self, *, is_known: bool) -> None:
        """Verify that the section needs no model, or that the scenario names one (`is_known`).

        Raises ValueError: the section needs a model and the scenario names none.
        """

    def load_times(self, model: "ModelShape | None", num_devices: int) -> LoadTimes | None:
        """How long loading KV from host memory takes; None if no KV is kept there."""
        return None

    def with_load_times(
        self, config: Any, find_model: "Callable[[], ModelShape | None]", num_devices: int
    ) -> Any:
        """The result of `config`, with how long copies between the device and host memory take."""
        return config

    # The key that says how servers use the store.
    store_key: ClassVar[str] = "host_cache.storage"

    @property
    def uses_store(self) -> bool:
        """Whether servers keep KV in the scenario's `store`."""
        return False

    @property
    def has_shared_stores(self) -> bool:
        """Whether servers share a store of the section itself."""
        return False

    @property
    def store_page_size(self) -> int:
        """Tokens of a page in the store."""
        return self.page_size

    def store_bytes_per_token(self, model: "ModelShape", tp: int) -> float:
        """KV of a token in the store: that of all GPUs of a server. Unit: bytes."""
        return model.kv_bytes_per_token

    def with_store(self, config: Any, store: StoreSettings) -> Any:
        """The result of `config`, with a store."""
        return config

    def for_model(self, find_model: "Callable[[], ModelShape | None]") -> Self:
        """The section with what follows from the model, which `find_model` reads if it is needed.

        Raises InputError: the section needs a model, and there is none, or another one.
        """
        return self

    def for_memory(
        self,
        find_model: "Callable[[], ModelShape | None]",
        find_memory: "Callable[[tuple[str, ...]], MemoryForKv]",
    ) -> Self:
        """The section with what follows from the model and the memory beside its weights.

        `find_memory` computes that memory, for the key that errors are about.
        """
        return self

    def config(self, pool_tokens: int) -> ServerConfig:
        """The server's settings with a pool of `pool_tokens` tokens; user code is not loaded.

        Raises InputError: `scheduler.KEY: reason`, if a real server would refuse to start.
        """
        raise NotImplementedError

    def of_rank(self, num_ranks: int) -> Self:
        """The settings of each of several ranks that step together.

        There are at least 2.

        Raises InputError: `scheduler.KEY: reason`, if there is not enough for each rank.
        """
        return self

    def num_front_ends(self, num_ranks: int) -> int:
        """Processes of a server with `num_ranks` ranks that take in its requests."""
        return 1

    def stage_layers(self, num_layers: int, num_stages: int) -> list[int]:
        """The layers of each stage of a pipeline.

        Raises InputError: there are more stages than layers.
        """
        raise InputError(f"family {self.family} has no pipelines", key=("latency", "pp"))

    def pipeline_config(self, config: Any, num_stages: int) -> Any:
        """The settings of a server whose model is a pipeline.

        `config` is the result of `config`; there are at least 2 stages.
        """
        raise InputError(f"family {self.family} has no pipelines", key=("latency", "pp"))

    def refuses_stages(self, role: str) -> str | None:
        """Why `latency.pp` of a prefill or decode server may not be above 1; None: it may."""
        return f"above 1 is not simulated on servers of role {role}"

    def of_role(self, role: str) -> Self:
        """The settings of servers of this role, before pools are sized.

        `role`: which part of each request they compute, see `sim.engine.server_config`.
        """
        return self

    def with_role(self, config: Any, role: str, model: "ModelShape | None") -> Any:
        """The settings of a server of this role.

        `config` is the result of `config`; for roles see `sim.engine.server_config`. `model` is
        None if its shape is not known.
        """
        if role == BOTH:
            return config
        reason = f"{self.family} has no servers of role {role}"
        raise InputError(reason, key=("scheduler", "family"))

    def with_user_code(self, config: Any, base_dir: Path, fail_at: FailAt) -> Any:
        """The settings with the user's own classes loaded.

        `config` is the result of `config`. `fail_at` makes errors about keys; it is also called
        during the run.

        Raises InputError: made by `fail_at`: a class cannot be loaded.
        """
        return config


def kv_format_of_flag(kv_cache_dtype: str) -> str | None:
    """What a server's flag `--kv-cache-dtype` says, for `kv_cache_format`."""
    if kv_cache_dtype == "auto":
        return None
    return "fp8" if kv_cache_dtype.startswith("fp8") else kv_cache_dtype


class ImportedSection(NamedTuple):
    """A valid section for a measured run, with hints for the user.

    Attributes:
        settings: keys and values, as YAML has them.
        hints: comments for the scenario file, one or two sentences each.
    """

    settings: dict[str, Any]
    hints: list[str]


def accepted_settings(
    section: type[ServerSection],
    fixed: Mapping[str, Any],
    known_settings: Mapping[str, object],
    *,
    source: str = "the results",
) -> ImportedSection:
    """Returns the `fixed` settings and those of `known_settings` that the section accepts.

    A hint names the settings that it refuses, and says that they are in the `source`. No text with
    a colon is accepted. A scenario may name a user's class as `module:Class`, but what somebody
    else's file names must not become code that runs.
    """
    accepted: dict[str, Any] = dict(fixed)
    refused: dict[str, object] = {}
    for key, value in known_settings.items():
        plain = float(value) if isinstance(value, Decimal) else value
        if _may_name_code(plain) or not is_valid(section, {**accepted, key: plain}):
            refused[key] = value
        else:
            accepted[key] = plain
    hints = [f"In {source}, but not simulated: {setting_pairs(refused)}."] if refused else []
    return ImportedSection(accepted, hints)


def _may_name_code(value: object) -> bool:
    """Whether a setting is no plain value, or has a text like `module:Class`."""
    if isinstance(value, Mapping):
        return any(_may_name_code(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_may_name_code(inner) for inner in value)
    if isinstance(value, str):
        return names_class(value)
    return not (value is None or isinstance(value, bool | int | float))


def is_valid(section: type[ServerSection], settings: Mapping[str, Any]) -> bool:
    """Whether a section accepts these settings."""
    try:
        section.model_validate(settings)
    except ValidationError:
        return False
    return True


def setting_pairs(settings: Mapping[str, object]) -> str:
    """Settings as text, for example `page_size 16, max_running_requests 64`."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in settings.items())


def _plain(value: object) -> str:
    return shorten(value) if isinstance(value, str) else describe(value)
