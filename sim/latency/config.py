"""The `latency` section of a scenario: one class for each kind."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from sim.user.objects import OrUserClass, UserClass
from sim.validation import ByKind, KeysError, StrictModel

# Measured on an H200: 790 TFLOP/s of a peak of 989, 4.3 TB/s of 4.8 (docs/explanation/latency.md).
_DEFAULT_MFU = 790 / 989
_DEFAULT_BANDWIDTH_EFFICIENCY = 4.3 / 4.8

# At most a minute: far above any real cost, and low enough that no step overflows 64-bit ns.
Seconds = Annotated[float, Field(ge=0, le=60)]
Efficiency = Annotated[float, Field(ge=0.001, le=1)]
NonEmpty = Annotated[str, Field(min_length=1)]
DrafterShare = Annotated[float, Field(ge=0, le=10)] | None
NumGpus = Annotated[int, Field(ge=1, le=1024)]


class LinearLatencyConfig(StrictModel):
    """A weighted sum of the step's token counts.

    docs/explanation/latency.md#linear has the formula.
    """

    kind: Literal["linear"]
    step_s: Seconds
    """Time that every step takes. Unit: s."""
    per_prefill_token_s: Seconds
    """Time for each new prompt token of the step. Unit: s a token."""
    per_decode_request_s: Seconds
    """Time for each decode row of the step. Unit: s a request."""
    per_context_token_s: Seconds
    """Time for each token that the step attends to, summed over all rows. Unit: s a token."""
    per_draft_token_s: Seconds = 0.0
    """Time for each draft token of the step, to make it and to verify it. Only with speculative
    decoding. Unit: s a token."""
    host_s: Seconds = 0.0
    """Host time of a step. Overlap scheduling hides the smaller of host and device time. Unit:
    s."""
    cold_start_s: Seconds = 0.0
    """Added to the first step, for a server that was not warmed up. Unit: s."""
    dp: NumGpus = 1
    """Ranks of each replica that step together (docs/explanation/ranks.md). A rank's step takes
    as long as the formula says for its own rows. Unit: ranks."""


class RooflineLatencyConfig(StrictModel):
    """The larger of compute time and memory time, from model shapes and hardware peaks.

    It needs `model` and `hardware`: both keys are required. docs/explanation/latency.md#roofline
    has the formulas.
    """

    kind: Literal["roofline"]
    mfu: Efficiency = _DEFAULT_MFU
    """Share of the hardware's arithmetic peak that is reached. The default was measured on an
    H200. Unit: share."""
    bandwidth_efficiency: Efficiency = _DEFAULT_BANDWIDTH_EFFICIENCY
    """Share of the hardware's memory bandwidth that is reached. The default was measured on an
    H200. Unit: share."""
    tp: NumGpus = 1
    """Degree of tensor parallelism. Unit: GPUs."""
    pp: NumGpus = 1
    """Degree of pipeline parallelism (docs/explanation/pipeline.md). Unit: stages."""
    step_overhead_s: Seconds = 0.0
    """Added to the device time of every step. Unit: s."""
    drafter_share: DrafterShare = None
    """Time of one pass of the drafter, as a share of a decode step of the same rows without drafts:
    about 1 / layers for EAGLE and MTP, 0 for n-gram. Required with speculative decoding, unless
    its method is n-gram. Unit: share."""
    host_s: Seconds = 0.0
    """Host time of a step. Overlap scheduling hides the smaller of host and device time. Unit:
    s."""


class RecordedLatencyConfig(StrictModel):
    """Step i takes as long as step i of a decision log.

    docs/explanation/latency.md#recorded says what is read.
    """

    kind: Literal["recorded"]
    path: NonEmpty
    """The decision log: JSON lines, plain or gzip."""


class QuantizationConfig(StrictModel):
    """Number formats, by the names of aiconfigurator-core; without a key: the checkpoint's."""

    gemm: NonEmpty | None = None
    """Weights and inputs of dense matrix products: `bfloat16`, `fp8`, `fp8_block`, `nvfp4`, ..."""
    moe: NonEmpty | None = None
    """Weights and inputs of experts: `bfloat16`, `fp8_block`, `w4a16_mxfp4`, `int4_wo`, ..."""
    attention: NonEmpty | None = None
    """Arithmetic of prefill attention: `bfloat16` or `fp8`."""
    kv_cache: NonEmpty | None = None
    """Elements of the KV cache: `bfloat16` or `fp8`."""


class AiconfiguratorLatencyConfig(StrictModel):
    """The operators of a step, each as long as it was measured on a GPU.

    Needs the extra `aiconfigurator` and the key `model`. docs/explanation/latency.md#aiconfigurator
    says how far to trust it.
    """

    kind: Literal["aiconfigurator"]
    system: NonEmpty
    """The GPU, by the package's own name: `h200_sxm`, `h100_sxm`, ..."""
    backend: NonEmpty = "sglang"
    """The serving engine whose kernels were measured: `sglang`, `vllm` or `trtllm`."""
    version: NonEmpty | None = None
    """Version of the backend. Without it: the newest that was measured in full."""
    tp: NumGpus = 1
    """Degree of tensor parallelism. Unit: GPUs."""
    dp: NumGpus = 1
    """Ranks with attention and a KV cache of their own, which step together. Unit: ranks."""
    pp: NumGpus = 1
    """Degree of pipeline parallelism (docs/explanation/pipeline.md). Unit: stages."""
    moe_tp: NumGpus | None = None
    """GPUs of a stage that share each expert. Without it: all that `moe_ep` leaves. Unit: GPUs."""
    moe_ep: NumGpus = 1
    """Groups of GPUs of a stage that each hold a part of the experts. `moe_tp` x `moe_ep` must be
    `tp` x `dp`. Unit: groups."""
    moe_a2a_backend: Literal["none", "deepep"] = "none"
    """How tokens reach their experts, by SGLang's name: with `none`, every GPU gathers the tokens
    of all ranks; with `deepep`, each token is sent to the GPUs of its experts. `deepep` needs whole
    experts: `moe_tp` 1 and `moe_ep` above 1."""
    quantization: QuantizationConfig = QuantizationConfig()
    """Number formats that differ from the checkpoint's."""
    efficiency: Annotated[float, Field(ge=0.1, le=10)] = 1.0
    """How fast the server's operators are, as a multiple of the measured ones: device times are
    divided by it. `calibrate fit` finds it from a benchmark's results. Unit: ratio."""
    host_s: Seconds = 0.0
    """Host time of a step. Overlap scheduling hides the smaller of host and device time. Unit:
    s."""

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        num_gpus, moe_ep = self.tp * self.dp, self.moe_ep
        if num_gpus % moe_ep or (self.moe_tp or num_gpus // moe_ep) * moe_ep != num_gpus:
            moe_tp = "" if self.moe_tp is None else f"moe_tp {self.moe_tp} x "
            spread = f"{moe_tp}moe_ep {moe_ep}"
            raise KeysError(
                f"{spread} does not fit the {num_gpus} GPUs of tp {self.tp} x dp {self.dp}",
                "moe_ep",
                "moe_tp",
            )
        if self.moe_a2a_backend == "deepep" and moe_ep != num_gpus:
            reason = f"moe_a2a_backend deepep spreads whole experts: moe_ep must be {num_gpus}"
            raise KeysError(f"{reason}, not {moe_ep}", "moe_ep", "moe_a2a_backend")
        if self.moe_a2a_backend == "deepep" and num_gpus == 1:
            raise KeysError("moe_a2a_backend deepep needs more than one GPU", "moe_a2a_backend")
        return self


class ProfileLatencyConfig(StrictModel):
    """Step times that were fitted to what a real device did.

    docs/explanation/profile.md explains how.
    """

    kind: Literal["profile"]
    drafter_share: DrafterShare = None
    """With speculative decoding: as of kind `roofline`. Unit: share."""
    path: NonEmpty
    """A file if it ends in `.json`; otherwise the name of a shipped profile, such as
    `example/tiny-cpu`."""


class LayersLatencyConfig(StrictModel):
    """Steps put together from published tables of layer times.

    docs/explanation/layers.md explains the formats and the formulas.
    """

    kind: Literal["layers"]
    drafter_share: DrafterShare = None
    """With speculative decoding: as of kind `roofline`. Unit: share."""
    path: NonEmpty
    """Folder of an LLMServingSim or Vidur profile; or Splitwise's table, or the folder that
    holds it."""
    tp: NumGpus = 1
    """Degree of tensor parallelism. It selects the tables, or the rows of a table. Unit: GPUs."""
    dp: NumGpus = 1
    """Degree of attention data parallelism: ranks of each replica that step together, with the
    experts spread over all GPUs (docs/explanation/layers.md#mixtures-of-experts). Above 1 the
    scheduler section must give the size of its pool, which is that of one rank. Unit: ranks."""
    num_layers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Layers of the model. Without it: those of the scenario's `model`; without that, those of
    the model that `meta.yaml` names. Unit: layers."""
    table_model: NonEmpty | None = None
    """Which model's times to take from a table of whole models. Not needed where the table has
    only one."""
    table_hardware: NonEmpty | None = None
    """Which hardware's times to take from a table of whole models. Not needed where the table
    has only one."""
    spread_correction: bool = False
    """Add time for decode rows of unequal contexts
    (docs/explanation/layers.md#unequal-contexts). Only with a profile that has a `skew_fit.csv`."""
    all_reduce_latency_s: Seconds | None = None
    """Latency of each all-reduce over the GPUs. Required with `tp` or `dp` above 1; 0 means no
    latency. Unit: s."""
    all_reduce_gb_s: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Rate at which a GPU sends and receives in an all-reduce. Required with `tp` or `dp` above
    1; 0 means that the transfer takes no time. Unit: 10^9 bytes/s."""
    host_s: Seconds = 0.0
    """Host time of a step that overlap does not hide: it is always added
    (docs/explanation/layers.md#words). Unit: s."""
    host_per_request_s: Seconds = 0.0
    """Host time for each prefill or decode row of the step; overlap does not hide it either.
    Unit: s a request."""
    host: NonEmpty | None = None
    """A file with both host times, written by `calibrate fit`. It takes the place of `host_s`
    and `host_per_request_s`."""


BuiltInLatency = Annotated[
    LinearLatencyConfig
    | RooflineLatencyConfig
    | RecordedLatencyConfig
    | AiconfiguratorLatencyConfig
    | ProfileLatencyConfig
    | LayersLatencyConfig,
    ByKind(),
]
LatencyConfig = Annotated[BuiltInLatency | UserClass, OrUserClass()]


class Parallelism(NamedTuple):
    """How a replica's model is spread over GPUs.

    Attributes:
        tp: GPUs that the attention of a rank is split over.
        dp: ranks with attention and a KV cache of their own.
        moe_tp: GPUs that share each expert.
        moe_ep: groups of GPUs that each hold a part of the experts; moe_tp x moe_ep = tp x dp.
        pp: stages of the pipeline, each with its own GPUs: tp x dp of them.
    """

    tp: int = 1
    dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    pp: int = 1

    @property
    def num_gpus(self) -> int:
        return self.tp * self.dp * self.pp


def parallelism(config: LatencyConfig) -> Parallelism:
    """How the model is spread, as far as the section says."""
    if isinstance(config, UserClass):
        return Parallelism()
    tp, dp, pp = (getattr(config, key, 1) for key in ("tp", "dp", "pp"))
    # Tables of layers spread the experts over the GPUs of all ranks.
    spread = tp * dp if isinstance(config, LayersLatencyConfig) and dp > 1 else 1
    moe_ep = getattr(config, "moe_ep", spread)
    return Parallelism(tp, dp, tp * dp // moe_ep, moe_ep, pp)
