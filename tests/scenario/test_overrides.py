"""`--set`: what it changes, and errors that name the option."""

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text

MIX = (
    "workload={kind: mix, parts: [{tenant: chat, workload: {kind: trace, format: azure, path: x}}]}"
)


def scenario_with(text, *overrides):
    return load_scenario_text(text, overrides, name="study.yaml").scenario


def test_override_changes_one_key(valid_text):
    """Everything else stays as written."""
    changed = scenario_with(valid_text, "scheduler.page_size=64")
    assert changed.scheduler.page_size == 64
    scheduler = changed.scheduler.model_copy(update={"page_size": 16})
    assert changed.model_copy(update={"scheduler": scheduler}) == scenario_with(valid_text)


def test_override_value_is_read_as_strict_yaml(valid_text):
    """Numbers, mappings and text with `=` or `:` mean what they mean in the file."""
    changed = scenario_with(
        valid_text,
        "slo.ttft_ms=1e2",
        "model=a=b",
        "name=12:30",
        "workload.prompt_tokens={kind: constant, value: 7}",
    )
    assert (changed.slo.ttft_ms, changed.model, changed.name) == (100.0, "a=b", "12:30")
    assert changed.workload.prompt_tokens.value == 7


def test_override_of_a_list_item_takes_an_index(valid_text):
    """Later options see what earlier ones made."""
    changed = scenario_with(valid_text, MIX, "workload.parts.0.tenant=batch")
    assert changed.workload.parts[0].tenant == "batch"


def test_override_given_twice_keeps_the_last(valid_text):
    """Options apply in order."""
    assert scenario_with(valid_text, "seed=5", "seed=6").seed == 6


def test_override_repairs_a_faulty_file(valid_text):
    """Only the data after all options is checked."""
    text = valid_text.replace("page_size: 16", "page_size: x")
    assert scenario_with(text, "scheduler.page_size=1").scheduler.page_size == 1


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["seed"], "--set seed: must have the form key.path=value"),
        (["=3"], "--set =3: the key path has an empty part"),
        (["slo..ttft_ms=3"], "--set slo..ttft_ms=3: the key path has an empty part"),
        (["seed.x=3"], "--set seed.x=3: seed is 3: no key can be set in it"),
        (["name.x.y=3"], "--set name.x.y=3: name is the string 'study': no key can be set in it"),
        ([MIX, "workload.parts.1.tenant=x"],
         "--set workload.parts.1.tenant=x: workload.parts is a list of 1: it has no index '1'"),
        ([MIX, "workload.parts.last=x"],
         "--set workload.parts.last=x: workload.parts is a list of 1: it has no index 'last'"),
        (["seed=[1"], "--set seed=[1: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        (["slo={a: 1, a: 2}"], "--set slo={a: 1, a: 2}: duplicate key 'a', first given on line 1"),
        (["seed=.nan"], "--set seed=.nan: .nan is not a finite number"),
        (["scheduler.page_sizes=3"],
         "--set scheduler.page_sizes=3: unknown key (did you mean page_size?)"),
        (["page_size=3"], "--set page_size=3: unknown key (did you mean scheduler.page_size?)"),
        (["sched.page_size=3"],
         "--set sched.page_size=3: sched: unknown key (did you mean scheduler?)"),
        (["slo={ttft_ms: x}"],
         "--set slo={ttft_ms: x}: slo.ttft_ms: must be a number, got the string 'x'"),
        (["scheduler.page_size=48"],
         ("--set scheduler.page_size=48: scheduler: chunked_prefill_size 512 is not a multiple"
          " of page_size 48")),
        (["latency={kind: linear}"], "--set latency={kind: linear}: latency.step_s: is required"),
        # An error about a key that no option set names the file.
        (["latency.kind=recorded", "latency.path=x"],
         "study.yaml:5: latency.step_s: unknown key (did you mean host.step_s?)"),
    ],
)  # fmt: skip
def test_override_that_is_bad_is_named(valid_text, overrides, line):
    """The label is the option itself; the key path follows only if it differs."""
    with pytest.raises(InputError) as caught:
        scenario_with(valid_text, *overrides)
    assert str(caught.value) == line


def test_override_that_is_long_or_has_line_breaks_stays_one_short_line(valid_text):
    """A whole document on the command line does not flood the terminal."""
    with pytest.raises(InputError) as caught:
        scenario_with(valid_text, "nonsense=" + "x\n" * 500)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 250
