"""The `latency` section of a scenario, hardware names, and the models they build."""

from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import LatencyConfig
from sim.latency.features import StepFeatures
from sim.latency.hardware import HARDWARE, load_hardware
from sim.latency.kinds.build import build_latency

ADAPTER = TypeAdapter(LatencyConfig)
LINEAR = {
    "kind": "linear",
    "step_s": 0.005,
    "per_prefill_token_s": 4e-5,
    "per_decode_request_s": 5e-5,
    "per_context_token_s": 2e-8,
}
STEP = StepFeatures(ForwardMode.MIXED, 100, 100 * 100, 1, 10, 4_900, 5_000)


def build(section, model=None, hardware=None, base_dir=Path()):
    return build_latency(
        ADAPTER.validate_python(section), model=model, hardware=hardware, base_dir=base_dir
    )


def test_config_linear_section_builds_the_linear_model():
    """5 ms + 100 x 40 us + 10 x 50 us + 5,000 x 20 ns = 9.6 ms of device, and the host's time."""
    assert build(LINEAR | {"host_s": 0.001}).step_ns(STEP) == (9_600_000, 1_000_000)


def test_config_cold_start_is_added_to_the_first_step_alone():
    """Also when the first step is asked for twice, or begins a run."""
    model = build(LINEAR | {"cold_start_s": 0.2})
    assert model.step_ns(STEP) == model.step_ns(STEP) == (209_600_000, 0)
    cold_ns, _ = model.decode_run_ns(STEP, 3)
    model.consume(STEP, 1)
    warm_ns, _ = model.decode_run_ns(STEP, 3)
    assert (cold_ns - warm_ns).tolist() == [200_000_000, 0, 0]
    assert model.step_ns(STEP) == (9_600_000, 0)


def test_config_whole_numbers_are_taken_as_seconds():
    """`step_s: 1` is one second."""
    zero = dict.fromkeys(LINEAR, 0) | {"kind": "linear", "step_s": 1}
    assert build(zero).step_ns(STEP) == (1_000_000_000, 0)


def test_config_recorded_path_is_relative_to_the_scenario(tmp_path):
    """The log is looked for beside the scenario."""
    (tmp_path / "run.jsonl").write_text('{"kind": "step", "device_ns": 7}\n', encoding="utf-8")
    section = {"kind": "recorded", "path": "run.jsonl"}
    assert build(section, base_dir=tmp_path).step_ns(STEP) == (7, 0)


def test_config_roofline_without_model_or_hardware_is_bad_input():
    """A roofline needs both; the message says which is missing."""
    model, hardware = load_model_shape("tiny", Path()), load_hardware("h200-sxm")
    with pytest.raises(InputError, match=r"latency: .* needs the scenario's model"):
        build({"kind": "roofline"}, hardware=hardware)
    with pytest.raises(InputError, match=r"latency: .* needs the scenario's hardware"):
        build({"kind": "roofline"}, model=model)
    assert build({"kind": "roofline"}, model=model, hardware=hardware).step_ns(STEP).device_ns > 0


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"kind": "quadratic"},
        {"kind": "linear"},
        LINEAR | {"steps": 1},
        LINEAR | {"step_s": "0.005"},
        LINEAR | {"step_s": True},
        LINEAR | {"step_s": -0.1},
        LINEAR | {"step_s": float("nan")},
        LINEAR | {"step_s": float("inf")},
        LINEAR | {"per_context_token_s": 61},
        {"kind": "roofline", "mfu": 0},
        {"kind": "roofline", "mfu": 1.01},
        {"kind": "roofline", "bandwidth_efficiency": 1e-9},
        {"kind": "recorded", "path": ""},
        {"kind": "recorded"},
    ],
)
def test_config_invalid_section_is_refused(section):
    """Unknown kinds and keys, wrong types, NaN and values out of range do not pass."""
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(section)


@pytest.mark.parametrize(
    ("name", "tflops", "gb_per_s", "gib"),
    [
        ("h200-sxm", (989, 1_979, None), 4_800, 141),
        ("h100-sxm", (989, 1_979, None), 3_350, 80),
        ("b200-sxm", (2_250, 4_500, 9_000), 7_700, 180),
        ("a100-80gb-sxm", (312, None, None), 2_039, 80),
        ("l40s", (362.05, 733, None), 864, 45),
        ("mi300x", (1_307.4, 2_614.9, None), 5_300, 192),
        ("rtx-4090", (165.2, 330.3, None), 1_008, 24),
    ],
)
def test_hardware_known_name_has_its_published_peaks(name, tflops, gb_per_s, gib):
    """Dense arithmetic, memory bandwidth and memory size of the data sheets."""
    hardware = load_hardware(name)
    bf16, fp8, fp4 = tflops
    assert hardware.peak_flops_per_s == pytest.approx(bf16 * 1e12)
    # What a GPU lacks is computed in 16 bits.
    assert hardware.flops_per_s("fp8") == pytest.approx((fp8 or bf16) * 1e12)
    assert hardware.flops_per_s("fp4") == pytest.approx((fp4 or bf16) * 1e12)
    assert hardware.peak_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert hardware.memory_bytes == gib * 2**30


def test_hardware_agrees_with_the_packages_systems():
    """NVIDIA's package gives the same peaks: within 5 %, as it has other editions of some."""
    package = pytest.importorskip("aiconfigurator_core")
    folder = Path(package.__path__[0]) / "systems"
    compared = 0
    for name in HARDWARE:
        hardware = load_hardware(name)
        if hardware.system is None:
            continue
        system = yaml.safe_load((folder / f"{hardware.system}.yaml").read_text())
        gpu = system["gpu"]
        assert system["node"]["intra_node_bw"] == hardware.link_bytes_per_s
        assert gpu["power"] == hardware.board_w
        assert gpu["mem_bw"] == pytest.approx(hardware.peak_bytes_per_s, rel=0.05)
        assert gpu["mem_capacity"] == pytest.approx(hardware.memory_bytes, rel=0.07)
        assert gpu["bfloat16_tc_flops"] == pytest.approx(hardware.peak_flops_per_s, rel=0.05)
        for key, peak in (("fp8", hardware.fp8_flops_per_s), ("fp4", hardware.fp4_flops_per_s)):
            assert gpu.get(f"{key}_tc_flops", 0) == pytest.approx(peak or 0, rel=0.05)
        compared += 1
    assert compared >= 10


def test_hardware_unknown_name_offers_the_nearest():
    """A typo is answered with the name that was meant."""
    with pytest.raises(InputError, match=r"hardware: unknown hardware 'H200' \(did you mean h200"):
        load_hardware("H200")
