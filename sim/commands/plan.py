"""`simulate plan`: the cheapest deployments that meet a scenario's SLO, and how to launch them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sim.command_line import (
    Jobs,
    OutputFormat,
    Resume,
    Set,
    command,
    format_option,
    out_option,
    renamed,
)
from sim.commands.without_file import (
    File,
    Model,
    Sure,
    Weights,
    check_given,
    check_unused,
    find_gpu,
    formats_of,
    has_experts,
    made_sure,
    refuse_weights,
    scenario_text,
    without_file,
)
from sim.core.errors import InputError, KeyPath, dotted, unknown_name

if TYPE_CHECKING:
    from sim.latency.hardware import Hardware
    from sim.scenario.load import LoadedScenario

SCENARIO = "scenario.yaml"
# A minute of traffic, if that is neither too little for a percentile nor too much to wait for.
_TRAFFIC_S, _MIN_REQUESTS, _MAX_REQUESTS = 60, 500, 20_000
# How lengths spread: those of chats and completions, roughly.
_PROMPT_CV, _OUTPUT_CV, _LONGEST = 0.8, 0.6, 8
_SEEDS = [1, 2, 3]
_NUM_SHOWN = 3
# Coarser than a scenario's own, because everybody waits for the answer.
_HEADROOM_STEP = 0.1
# Over how many GPUs of a host a replica is spread. Of a mixture of experts each GPU may have an
# attention of its own, and the experts may be spread whole.
_GPUS_OF_HOST = (1, 2, 4, 8)
# If the model does not fit into a host.
_HOSTS_OF_REPLICA = (2, 4)
_MAX_REPLICAS = 64
_HOSTS = {"sglang": "sglang-0.5.10", "vllm": "vllm-async"}
# Smaller steps than the servers' own are tried, too: prompts then delay decoding rows less.
_SMALL_STEP = 2048
_STEP_TOKENS = {
    "sglang": "scheduler.chunked_prefill_size",
    "vllm": "scheduler.max_num_batched_tokens",
}
# The option that sets each key, for errors.
_LABELS: Mapping[KeyPath, str] = {
    ("model",): "--model",
    ("latency", "quantization", "gemm"): "--weights",
    ("latency", "quantization", "moe"): "--weights",
    ("workload", "arrivals", "rate_rps"): "--rate-rps",
    ("workload", "prompt_tokens", "mean"): "--prompt-tokens",
    ("workload", "output_tokens", "mean"): "--output-tokens",
    ("slo", "ttft_ms"): "--ttft-ms",
    ("slo", "tpot_ms"): "--tpot-ms",
    ("plan", "min_slo_attainment"): "--percentile",
    ("plan", "rate_rps"): "--rate-rps",
    ("plan", "gpus"): "--hardware",
    ("plan", "tp"): "--tp",
    ("plan", "max_gpus"): "--max-gpus",
    ("plan", "max_kw"): "--max-kw",
    ("plan", "disaggregated", "gpu_bandwidth_gb_s"): "--disaggregated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options that stand for a scenario file."""

    model: Model = None
    weights: Weights = None
    hardware: Annotated[
        list[str] | None,
        without_file(
            "a GPU to try, such as h100_sxm, and its price per hour; repeatable",
            metavar="GPU[=PRICE]",
        ),
    ] = None
    tp: Annotated[
        list[int] | None,
        without_file(
            "GPUs of a replica, tensor parallel only; repeatable; default: 1, 2, 4, 8, and what"
            " else the model allows",
            metavar="N",
        ),
    ] = None
    server: Annotated[
        list[str] | None,
        without_file("sglang or vllm; default: try both", metavar="FAMILY"),
    ] = None
    rate_rps: Annotated[
        float | None,
        without_file("requests/s of all users; without it, --max-gpus asks for the most"),
    ] = None
    max_gpus: Annotated[int | None, without_file("most GPUs of a deployment", metavar="N")] = None
    max_kw: Annotated[
        float | None,
        without_file("most power of a deployment's GPUs, where it was measured", metavar="KW"),
    ] = None
    prompt_tokens: Annotated[int | None, without_file("mean length of prompts", min=1)] = None
    output_tokens: Annotated[int | None, without_file("mean length of answers", min=1)] = None
    ttft_ms: Annotated[float | None, without_file("limit on the time to the first token")] = None
    tpot_ms: Annotated[float | None, without_file("limit on the time of each further token")] = None
    percentile: Annotated[
        float | None,
        without_file(
            "percentage of requests that must keep both limits; default: 99", min=1, max=100
        ),
    ] = None
    disaggregated: Annotated[
        float | None,
        without_file(
            "try disaggregated prefill and decode servers, too; the network bandwidth of a GPU,"
            " such as 50 for 400 Gbit/s",
            metavar="GB/S",
        ),
    ] = None

    _apart: Annotated[
        str | None, renamed("--apart", "--disaggregated", "the network bandwidth of a GPU")
    ] = None

    def check_unused(self) -> None:
        """Raise InputError if one of the options is given: a scenario file has keys for them."""
        check_unused(self, {label: dotted(key) for key, label in _LABELS.items()})

    def load(self, out: Path, overrides: Sequence[str]) -> "LoadedScenario":
        """The scenario that asks this, as if it were a file in a folder.

        Raises InputError: an option is missing or has a wrong value. The message names it.
        """
        from sim.scenario.load import load_scenario_options
        from sim.scenario.overrides import from_here

        load = "rate_rps" if self.max_gpus is None else "max_gpus"
        check_given(self, "model", "hardware", load, "prompt_tokens", "output_tokens")
        if self.ttft_ms is None and self.tpot_ms is None:
            raise InputError("--ttft-ms or --tpot-ms: is needed without FILE")
        data = {**self._scenario(), "model": from_here("model", self.model, out)}
        loaded = load_scenario_options(data, _LABELS, overrides, path=out / SCENARIO)
        if self.tp is not None or not _needs_hosts(loaded):
            return loaded
        data["plan"]["parallel"] += _over_hosts(self.model or "", data["latency"])
        return load_scenario_options(data, _LABELS, overrides, path=out / SCENARIO)

    def _scenario(self) -> dict[str, Any]:
        gpus = [_gpu(text) for text in self.hardware or ()]
        is_for_load = self.rate_rps is None
        # The search for the most load begins with another rate, which step times promise.
        rate_rps = _MIN_REQUESTS / _TRAFFIC_S if self.rate_rps is None else self.rate_rps
        slo = {"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms}
        is_measured = all(gpu.system for gpu, _ in gpus)
        if not is_measured:
            refuse_weights(self.weights, next(gpu for gpu, _ in gpus if not gpu.system))
        latency = self._latency(gpus[0][0]) if is_measured else {"kind": "roofline"}
        name_of = {gpu.name: (gpu.system if is_measured else gpu.name) or "" for gpu, _ in gpus}
        return {
            "name": "plan",
            "model": self.model,
            **({} if is_measured else {"hardware": gpus[0][0].name}),
            "latency": latency,
            "workload": {
                "kind": "synthetic",
                "num_requests": max(
                    _MIN_REQUESTS, min(round(_TRAFFIC_S * rate_rps), _MAX_REQUESTS)
                ),
                "arrivals": {"kind": "poisson", "rate_rps": rate_rps},
                "prompt_tokens": _lengths(self.prompt_tokens or 0, _PROMPT_CV),
                "output_tokens": _lengths(self.output_tokens or 0, _OUTPUT_CV),
            },
            "scheduler": {"family": next(iter(_HOSTS))},
            "slo": {key: limit for key, limit in slo.items() if limit is not None},
            "plan": {
                "min_slo_attainment": (99 if self.percentile is None else self.percentile) / 100,
                **(
                    {"objective": "load"}
                    if is_for_load
                    else {"rate_rps": rate_rps, "headroom_step": _HEADROOM_STEP}
                ),
                **({} if self.max_gpus is None else {"max_gpus": self.max_gpus}),
                **({} if self.max_kw is None else {"max_kw": self.max_kw}),
                "seeds": _SEEDS,
                "num_shown": _NUM_SHOWN,
                "gpus": {name_of[gpu.name]: price for gpu, price in gpus},
                **self._parallel(latency),
                "servers": [
                    _server(family, host, name_of.values())
                    for family, host in self._servers().items()
                ],
                "max_replicas": _MAX_REPLICAS,
                **self._disaggregated(),
            },
        }

    def _parallel(self, latency: Mapping[str, Any]) -> dict[str, Any]:
        """How a replica may be spread: as asked, or over the GPUs of a host."""
        if self.tp is not None:
            return {"tp": list(self.tp)}
        listed = [{"tp": num} for num in _GPUS_OF_HOST]
        if _has_ranks(self.model or "", latency):
            host = _GPUS_OF_HOST[-1]
            if self.disaggregated is not None:
                # Every pair of prefill and decode servers is tried, so there are fewer.
                return {"parallel": [*listed, {"dp": host, "moe_ep": host}]}
            for num in _GPUS_OF_HOST[1:]:
                listed += [{"tp": num, "moe_ep": num}, {"dp": num}, {"dp": num, "moe_ep": num}]
        return {"parallel": listed}

    def _disaggregated(self) -> dict[str, Any]:
        if self.disaggregated is None:
            return {}
        return {"disaggregated": {"gpu_bandwidth_gb_s": self.disaggregated}}

    def _latency(self, gpu: "Hardware") -> dict[str, Any]:
        latency: dict[str, Any] = {"kind": "aiconfigurator", "system": gpu.system}
        formats = formats_of(self.model or "", self.weights)
        return {**latency, "quantization": formats} if formats else latency

    def _servers(self) -> Mapping[str, str]:
        for family in self.server or ():
            if family not in _HOSTS:
                raise InputError(f"--server: {unknown_name('family', family, _HOSTS)}")
        return {family: _HOSTS[family] for family in self.server or _HOSTS}


def assumed(loaded: "LoadedScenario", is_for_load: bool) -> str:
    """What the options do not say, and where it is written."""
    num_requests = f"{getattr(loaded.scenario.workload, 'num_requests', 0):,}"
    if is_for_load:
        num_requests += " or more"
    return (
        f"Assumed: {num_requests} requests with each seed, Poisson arrivals, lognormal lengths, no"
        " shared prefixes, default settings of the servers."
        f"\n{loaded.path} has all of it; --set changes it."
    )


def _has_ranks(model: str, latency: Mapping[str, Any]) -> bool:
    """Whether ranks with their own attention may share the experts."""
    return latency["kind"] == "aiconfigurator" and has_experts(model)


def _needs_hosts(loaded: "LoadedScenario") -> bool:
    """Whether no GPU that may be used has a replica that fits into one host."""
    from sim.sweep.capacity.plan import plan_capacity

    capacity = plan_capacity(loaded)
    return not any(
        one.reason is None and any(capacity.server_loads.of(one)) for one in capacity.candidates
    )


def _over_hosts(model: str, latency: Mapping[str, Any]) -> list[dict[str, int]]:
    """How a replica may be spread over several hosts: stages, and ranks that share the experts."""
    host = _GPUS_OF_HOST[-1]
    listed = [{"tp": host, "pp": num} for num in _HOSTS_OF_REPLICA]
    if _has_ranks(model, latency):
        listed += [{"dp": host * num, "moe_ep": host * num} for num in _HOSTS_OF_REPLICA]
    return listed


def _server(family: str, host: str, gpus: Iterable[str]) -> dict[str, Any]:
    """A family as the section `plan.servers` has it, with the sizes of steps to try."""
    by_gpu = _gpu_settings(family, gpus)
    step_tokens = _STEP_TOKENS[family]
    sizes = {_SMALL_STEP, *(settings[step_tokens] for settings in by_gpu.values())}
    return {
        "family": family,
        "settings": {"host": host},
        "gpu_settings": by_gpu,
        "grid": {step_tokens: sorted(sizes)},
    }


def _gpu_settings(family: str, gpus: Iterable[str]) -> dict[str, dict[str, int]]:
    """What a real server of a family takes by default on each GPU, by key path."""
    from sim.families import family_named

    return {
        gpu: {
            f"scheduler.{key}": size
            for key, size in family_named(family).gpu_defaults(gpu.replace("-", "_")).items()
        }
        for gpu in gpus
    }


def _lengths(mean: int, spread: float) -> dict[str, Any]:
    return {"kind": "lognormal", "mean": mean, "cv": spread, "max": _LONGEST * mean}


def _gpu(text: str) -> "tuple[Hardware, dict[str, float]]":
    """`h100_sxm` or `h100_sxm=2.5`: the GPU, and its section in `plan.gpus`."""
    name, has_price, price = text.partition("=")
    found = find_gpu(name)
    if not has_price:
        return found, {}
    try:
        return found, {"price_per_hour": float(price)}
    except ValueError:
        raise InputError(f"--hardware {text}: the price must be a number") from None


@command(user_code=True)
def plan(
    *,
    file: File = None,
    question: Question,
    set_: Set = None,
    sure: Sure = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        out_option("folder for points and results; default: FILE-plan, or plan-out without FILE"),
    ] = None,
    resume: Resume = True,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Find the cheapest GPUs, parallelism and replicas that meet an SLO.

    Or, with --max-gpus and without --rate-rps, the most requests/s that these GPUs can serve. With
    FILE: the SLO of a scenario with a plan section. Without it: of the traffic that options
    describe.
    """
    from sim.commands.output import check_folder, print_line
    from sim.commands.running import plans
    from sim.commands.running.sweeps import prepare_folder
    from sim.core.files import write_text
    from sim.core.packed import name_of
    from sim.scenario.build import check_packages
    from sim.sweep.capacity.plan import plan_capacity

    out = out or Path("plan-out" if file is None else f"{name_of(file)}-plan")
    loaded = made_sure(_load(file, question, out, set_ or ()), "plan", sure=sure)
    capacity = plan_capacity(loaded)
    check_packages(capacity.plan.base)
    check_folder(out, file or Path())
    prepare_folder(out)
    if file is None:
        write_text(loaded.path, scenario_text(loaded, "plan"))
    found = plans.plan_in(out, capacity, jobs=jobs, fresh=not resume)
    text, launches = plans.write_plan(out, capacity, found)
    if format_ is OutputFormat.JSON:
        print_line(text.rstrip())
    else:
        if file is None:
            print_line(assumed(loaded, capacity.is_for_load))
        # What --set says is in the file that is made of options, too.
        overrides = () if file is None else set_ or ()
        plans.print_plan(loaded.path, overrides, capacity, found, launches)
    return plans.plan_exit_code(found.deployments)


def _load(
    file: Path | None, question: Question, out: Path, overrides: Sequence[str]
) -> "LoadedScenario":
    from sim.scenario.load import load_scenario

    if file is None:
        return question.load(out, overrides)
    question.check_unused()
    return load_scenario(file, overrides)
