"""Kind layers in a scenario's section: host times, links, and what is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.core.errors import InputError
from sim.latency.config import LatencyConfig
from sim.latency.host import HostTimes, write_host_times
from tests.support.latency_steps import decode_step, extend_step, mixed_step

LINK = {"all_reduce_latency_s": 0.0, "all_reduce_gb_s": 0.0}


STEPS = (decode_step(16, 1600), extend_step((0, 9), (0, 9)), mixed_step(((0, 9),), 4, 400))
SPLITWISE = {"table_model": "llama2-70b", "table_hardware": "h100-80gb", "tp": 4}


def test_layers_host_time_grows_with_the_requests_of_a_step(build):
    """1.5 ms a step and 10 us for every row, prefill and decode alike."""
    model = build("serving_sim", host_s=0.0015, host_per_request_s=1e-5)
    assert model.step_ns(decode_step(16, 1600)).host_ns == 1_660_000
    assert model.step_ns(extend_step((0, 9), (0, 9))).host_ns == 1_520_000
    assert model.step_ns(mixed_step(((0, 9),), 4, 400)).host_ns == 1_550_000
    assert model.decode_run_ns(decode_step(16, 1600), 3)[1].tolist() == [1_660_000] * 3
    assert build("serving_sim").step_ns(decode_step(16, 1600)).host_ns == 0


@pytest.mark.parametrize("kind", ["serving_sim", "splitwise"])
def test_layers_host_time_is_not_hidden_by_overlap(build, kind):
    """With overlap, device time is longer by the host time, in steps and in runs."""
    keys = SPLITWISE if kind == "splitwise" else {}
    host = {"host_s": 0.0015, "host_per_request_s": 1e-5}
    alone, beside, within = (
        build(kind, **keys, **more)
        for more in ({"overlaps": True}, host | {"overlaps": False}, host | {"overlaps": True})
    )
    for step in STEPS:
        device_ns, host_ns = beside.step_ns(step)
        assert host_ns == 1_500_000 + 10_000 * (step.num_prefill_rows + step.num_decode_rows)
        assert alone.step_ns(step) == (device_ns, 0)
        assert within.step_ns(step) == (device_ns + host_ns, 0)
    device_ns, host_ns = beside.decode_run_ns(STEPS[0], 30)
    assert alone.decode_run_ns(STEPS[0], 30)[0].tolist() == device_ns.tolist()
    both_ns, none_ns = within.decode_run_ns(STEPS[0], 30)
    assert both_ns.tolist() == (device_ns + host_ns).tolist()
    assert none_ns.tolist() == [0] * 30


def test_layers_host_times_of_a_file_are_not_hidden_by_overlap(build, tmp_path):
    """Host times of a file are treated as those of the section."""
    write_host_times(HostTimes(0.002, 3e-5), {}, tmp_path / "host.json")
    without = build("serving_sim").step_ns(STEPS[0]).device_ns
    model = build("serving_sim", overlaps=True, host="host.json")
    assert model.step_ns(STEPS[0]) == (without + 2_000_000 + 16 * 30_000, 0)


def test_layers_spread_correction_needs_a_table_that_says_how(build, replaced):
    """Vidur's, Splitwise's and some of LLMServingSim's do not; `false` is always allowed."""
    off = {"meta.yaml": replaced("enabled: true", "enabled: false"), "tp1/skew_fit.csv": None}
    line = r"^latency.spread_correction: needs a table with a skew_fit; this one has none$"
    for kind, changes, keys in (
        ("serving_sim", off, {}),
        ("vidur", None, {"num_layers": 7}),
        ("splitwise", None, SPLITWISE),
    ):
        with pytest.raises(InputError, match=line):
            build(kind, changes, **keys, spread_correction=True)
        build(kind, changes, **keys, spread_correction=False)
    build("serving_sim", spread_correction=True)


def test_layers_host_times_may_be_a_file_beside_the_scenario(build, tmp_path):
    """A file replaces the two numbers; both together are an error."""
    write_host_times(HostTimes(0.002, 3e-5), {}, tmp_path / "host.json")
    model = build("serving_sim", host="host.json")
    assert model.step_ns(decode_step(10, 1000)).host_ns == 2_300_000
    for key in ("host_s", "host_per_request_s"):
        with pytest.raises(
            InputError, match=rf"^latency.{key}: must not be given with latency.host$"
        ):
            build("serving_sim", host="host.json", **{key: 0.0})
    with pytest.raises(InputError, match=r"absent.json: cannot be read: No such file"):
        build("serving_sim", host="absent.json")


@pytest.mark.parametrize("kind", ["serving_sim", "vidur"])
def test_layers_of_a_split_model_need_the_link_between_devices(build, kind):
    """The tables do not have it; zeros mean that it takes no time."""
    for missing in LINK:
        keys = {key: value for key, value in LINK.items() if key != missing}
        with pytest.raises(InputError, match=rf"latency.{missing}: is required with latency.tp ab"):
            build(kind, _with_degree_2(kind), num_layers=2, tp=2, **keys)
        with pytest.raises(
            InputError, match=rf"latency.{missing}: needs latency.tp or latency.dp above"
        ):
            build(kind, num_layers=2, **{missing: 0.0})
    build(kind, _with_degree_2(kind), num_layers=2, tp=2, **LINK)


def test_layers_link_with_a_bandwidth_needs_the_hidden_size(build, replaced):
    """LLMServingSim's tables do not have it, and the model is unknown."""
    changes = _with_degree_2("serving_sim")
    changes["meta.yaml"] = replaced("meta-llama/Llama-3.1-8B", "org/Secret-7B")
    keys = {"tp": 2, "num_layers": 2, "all_reduce_latency_s": 1e-5}
    with pytest.raises(InputError, match=r"latency.all_reduce_gb_s: needs the scenario's model"):
        build("serving_sim", changes, **keys, all_reduce_gb_s=50.0)
    build("serving_sim", changes, **keys, all_reduce_gb_s=50.0, model="llama-3.1-8b")
    build("serving_sim", changes, **keys, all_reduce_gb_s=0.0)


@pytest.mark.parametrize("key", ["table_model", "table_hardware"])
def test_layers_tables_of_layers_have_no_choice_of_models(build, key):
    """A key without effect is an error."""
    with pytest.raises(InputError, match=rf"latency.{key}: belongs to tables of whole models"):
        build("serving_sim", **{key: "llama2-70b"})


def test_layers_unknown_things_at_the_path_are_named(build, tmp_path):
    """There is nothing, an empty folder, or a file that is no table."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    for path, message in (
        ("absent", "latency.path: .*/absent: no such file or folder"),
        ("empty", r"latency.path: .*/empty: has neither meta.yaml \(LLMServingSim\), mlp.csv and"),
        ("notes.txt", "latency.path: .*/notes.txt: is neither a folder nor a .csv or .csv.gz file"),
    ):
        with pytest.raises(InputError, match=message):
            build("serving_sim", path=path)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"path": ""},
        {"path": "x", "tp": 0},
        {"path": "x", "tp": 1.5},
        {"path": "x", "num_layers": 0},
        {"path": "x", "host_s": -1},
        {"path": "x", "host_per_request_s": float("nan")},
        {"path": "x", "all_reduce_gb_s": -1},
        {"path": "x", "all_reduce_latency_s": 61},
        {"path": "x", "layers": 3},
        {"path": "x", "spread_correction": 1},
    ],
)
def test_layers_invalid_section_is_refused(section):
    """Unknown keys, wrong types and values out of range do not pass."""
    with pytest.raises(ValidationError):
        TypeAdapter(LatencyConfig).validate_python({"kind": "layers"} | section)


def _with_degree_2(kind):
    """The keys that degree 2 needs. Vidur's small tables have both degrees."""
    if kind == "vidur":
        return {}
    names = ("dense", "per_sequence", "attention", "skew_fit")
    return {f"tp2/{name}.csv": _SERVING_SIM_TP2[name] for name in names}


_SERVING_SIM_TP2 = {
    "dense": "layer,tokens,time_us\n"
    + "".join(
        f"{layer},1,10\n"
        for layer in (
            *("embedding", "layernorm", "qkv_proj", "rotary_emb", "o_proj"),
            *("gate_up_proj", "act_fn", "down_proj", "final_layernorm"),
        )
    ),
    "per_sequence": "layer,sequences,time_us\nlm_head,1,500\nsampler,1,50\n",
    "attention": "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n16,0,0,0,8\n0,0,1,16,8\n",
    "skew_fit": "pc,n_label,skew_rate_label,kv_big_label,kp_label,alpha\n"
    "0,n<=2,sr<=25%,kvB<=1k,kp=0,0.1\n",
}
