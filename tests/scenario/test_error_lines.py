"""Every kind of bad scenario gives one exact line with place, key and reason."""

import pytest

# (what is replaced in the valid scenario, by what, the error after "study.yaml:")
SPOILED = [
    # unknown and missing keys
    ("page_size: 16", "page_sizes: 16",
     "16: scheduler.page_sizes: unknown key (did you mean page_size?)"),
    ("num_requests: 5", "num_request: 5",
     "11: workload.num_request: unknown key (did you mean num_requests?)"),
    ("rate_rps: 10", "rate_rp: 10",
     "12: workload.arrivals.rate_rp: unknown key (did you mean rate_rps?)"),
    ("seed: 3", "max_total_tokens: 3",
     "2: max_total_tokens: unknown key (did you mean scheduler.max_total_tokens?)"),
    ("kind: poisson,", "kind: poisson, zzzz: 1,",
     "12: workload.arrivals.zzzz: unknown key (known: kind, rate_rps)"),
    ("page_size: 16", "zzzz: 16", "16: scheduler.zzzz: unknown key"),
    ("name: study\n", "", "1: name: is required"),
    ("  num_requests: 5\n", "", "9: workload.num_requests: is required"),
    ("kind: poisson, ", "", "12: workload.arrivals.kind: is required"),
    ("  max_total_tokens: 4096\n", "",
     ("15: scheduler.max_total_tokens is required: it can be derived only from model and"
      " hardware together")),
    # unknown values
    ("kind: synthetic", "kind: synthtic",
     "10: workload.kind: unknown kind 'synthtic' (did you mean synthetic?)"),
    ("kind: linear", "kind: none",
     ("4: latency.kind: unknown kind 'none' (one of: linear, roofline, recorded,"
      " aiconfigurator, profile, layers)")),
    ("kind: linear", "kind: 3",
     ("4: latency.kind: must be one of linear, roofline, recorded, aiconfigurator, profile,"
      " layers, got 3")),
    ("page_size: 16", "schedule_policy: LMP",
     "16: scheduler.schedule_policy: unknown policy 'LMP' (did you mean lpm?)"),
    ("page_size: 16", "retraction_policy: lengths",
     "16: scheduler.retraction_policy: unknown value 'lengths' (did you mean length?)"),
    ("page_size: 16", "radix_eviction_policy: slru2",
     "16: scheduler.radix_eviction_policy: unknown value 'slru2' (did you mean slru?)"),
    ("seed: 3", "router: any",
     ("2: router: unknown router 'any' (one of: round-robin, least-loaded, prefix-aware,"
      " session-sticky, random, power-of-two, kv-aware, scored)")),
    ("seed: 3", "router: prefix_aware",
     "2: router: unknown router 'prefix_aware' (did you mean prefix-aware?)"),
    ("seed: 3", "router: 3", "2: router: must be a name or a mapping, got 3"),
    ("seed: 3", "router: {block_tokens: 3}", "2: router.kind: is required"),
    ("seed: 3", "router: {kind: least-load}",
     "2: router.kind: unknown kind 'least-load' (did you mean least-loaded?)"),
    ("seed: 3", "router: {kind: least-loaded, block_tokens: 3}",
     "2: router.block_tokens: unknown key (known: kind)"),
    ("seed: 3", "router: {kind: prefix-aware, max_tree_tokens: 15}",
     "2: router: max_tree_tokens 15 is less than block_tokens 16"),
    ("seed: 3", "router: {kind: session-sticky, max_idle_s: 0}",
     "2: router.max_idle_s: must be greater than 0, got 0"),
    # wrong types
    ("page_size: 16", "page_size: '16'",
     "16: scheduler.page_size: must be a whole number, got the string '16'"),
    ("page_size: 16", "page_size: 16.0",
     "16: scheduler.page_size: must be a whole number, got 16.0"),
    ("page_size: 16", "page_size: true",
     "16: scheduler.page_size: must be a whole number, got true"),
    ("page_size: 16", "enable_mixed_chunk: on",
     "16: scheduler.enable_mixed_chunk: must be true or false, got the string 'on'"),
    ("step_s: 0.005", "step_s: 5ms", "5: latency.step_s: must be a number, got the string '5ms'"),
    ("step_s: 0.005", 'step_s: "1.0"', "5: latency.step_s: must be a number, got the string '1.0'"),
    ("step_s: 0.005", "step_s: .inf", "5: .inf is not a finite number"),
    ("name: study", "name: 3", "1: name: must be text, got 3"),
    ("seed: 3", "slo: [1]", "2: slo: must be a mapping, got a list"),
    ("seed: 3", "slo:", "2: slo: must be a mapping, got null"),
    ("arrivals: {kind: poisson, rate_rps: 10}", "arrivals: poisson",
     "12: workload.arrivals: must be a mapping, got the string 'poisson'"),
    ("{kind: constant, value: 10}", "{kind: choice, values: 10}",
     "14: workload.output_tokens.values: must be a list, got 10"),
    ("{kind: constant, value: 10}", "{kind: choice, values: [10, x]}",
     "14: workload.output_tokens.values.1: must be a whole number, got the string 'x'"),
    ("{kind: constant, value: 10}", "{kind: choice, values: []}",
     "14: workload.output_tokens.values: must have 1 or more items, got 0"),
    # a key that stands somewhere else
    ("page_size: 16", "seed: 16",
     "16: scheduler.seed: unknown key (seed stands at the top of a scenario)"),
    ("step_s: 0.005", "dpp: 2\n  step_s: 0.005", "5: latency.dpp: unknown key (did you mean dp?)"),
    # a value of one of several types
    ("num_requests: 5", "num_requests: 5\n  max_new_tokens: many",
     "12: workload.max_new_tokens: must be a whole number or a mapping, got the string 'many'"),
    ("num_requests: 5", "num_requests: 5\n  max_new_tokens: 0",
     "12: workload.max_new_tokens: must be at least 1, got 0"),
    ("num_requests: 5", "num_requests: 5\n  max_new_tokens: {factr: 2}",
     "12: workload.max_new_tokens.factr: unknown key (did you mean factor?)"),
    # out of range
    ("seed: 3", "seed: -1", "2: seed: must be at least 0, got -1"),
    ("max_total_tokens: 4096", "max_total_tokens: 99999999999999",
     "17: scheduler.max_total_tokens: must be at most 1099511627776, got 99999999999999"),
    ("seed: 3", "replicas: 4097", "2: replicas: must be at most 4096, got 4097"),
    ("page_size: 16", "page_size: 0", "16: scheduler.page_size: must be at least 1, got 0"),
    ("seed: 3", "slo: {ttft_ms: 0.0}", "2: slo.ttft_ms: must be greater than 0, got 0.0"),
    ("name: study", "name: ''", "1: name: must not be empty"),
    ("name: study", "name: a/b", "1: name: must be printable and without slashes: it names files"),
    ("chunked_prefill_size: 512", "chunked_prefill_size: 0",
     "18: scheduler.chunked_prefill_size: must be -1 (off) or at least 1, got 0"),
    ("chunked_prefill_size: 512", "chunked_prefill_size: null",
     "18: scheduler.chunked_prefill_size: must be a whole number, got null"),
    # contradictions
    ("chunked_prefill_size: 512", "chunked_prefill_size: 500",
     "18: scheduler: chunked_prefill_size 500 is not a multiple of page_size 16"),
    ("max_total_tokens: 4096", "max_total_tokens: 15",
     "17: scheduler: max_total_tokens 15 is less than page_size 16"),
    ("max_total_tokens: 4096", "max_total_tokens: 4096\n  context_length: 8",
     "18: scheduler: context_length 8 is less than page_size 16"),
    ("page_size: 16", "enable_priority_scheduling: true\n  schedule_policy: lpm",
     ("16: scheduler: enable_priority_scheduling goes with schedule_policy fcfs, lof,"
      " priority, not lpm")),
    ("page_size: 16", "mem_fraction_static: 0.5",
     "16: scheduler: mem_fraction_static derives max_total_tokens: give one of them, not both"),
    ("{kind: constant, value: 10}", "{kind: uniform, min: 3, max: 2}",
     "14: workload.output_tokens: min 3 is above max 2"),
    # syntax
    ("seed: 3", "seed: 3\nseed: 4", "3: duplicate key 'seed', first given on line 2"),
    ("  page_size", "\tpage_size", "16: a tab where YAML allows only spaces"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), SPOILED, ids=[new for _, new, _ in SPOILED])
def test_scenario_with_one_fault_says_so_in_one_line(valid_text, error_of, old, new, line):
    """A valid scenario with one thing wrong gives exactly that line."""
    assert old in valid_text
    assert error_of(valid_text.replace(old, new, 1)) == f"study.yaml:{line}"


def test_scenario_with_several_faults_reports_the_first_line(valid_text, error_of):
    """Errors come in reading order, whatever order the checks run in."""
    text = valid_text.replace("page_size: 16", "page_size: -5").replace("5e-5", "fast")
    assert error_of(text) == (
        "study.yaml:7: latency.per_decode_request_s: must be a number, got the string 'fast'"
    )


def test_part_of_a_mix_with_a_fault_is_named_by_its_index(valid_text, error_of):
    """The arms that a kind selects do not show in the key path."""
    head = valid_text[: valid_text.index("workload:")]
    text = f"""{head}workload:
  kind: mix
  parts:
    - tenant: chat
      workload:
        kind: clients
        clients: 0
        requests_per_client: 2
        think_s: {{kind: constant, value: 1}}
        prompt_tokens: {{kind: constant, value: 10}}
        output_tokens: {{kind: constant, value: 10}}
scheduler: {{max_total_tokens: 4096}}
"""
    assert error_of(text) == (
        "study.yaml:15: workload.parts.0.workload.clients: must be at least 1, got 0"
    )


def test_tenant_that_no_log_may_have_is_refused_in_the_scenario(valid_text, error_of):
    """It turns the rest of a line around. A log of it could not be read."""
    head, _, tail = valid_text.partition("workload:\n")
    text = f'{head}workload:\n  tenant: "\\u202egnp"\n{tail}'
    line = head.count("\n") + 2
    said = "workload.tenant: must have characters that can be printed only"
    assert error_of(text) == f"study.yaml:{line}: {said}"
    part = 'workload: {kind: mix, parts: [{tenant: "\\u202e", workload: {}}]}\n'
    assert "workload.parts.0.tenant: must have characters" in error_of(head + part)


def test_default_that_contradicts_a_written_key_blames_the_written_key(valid_text, error_of):
    """A page size that does not divide the default chunk size is the user's line."""
    text = valid_text.replace("  chunked_prefill_size: 512\n", "").replace(": 16", ": 48")
    assert error_of(text) == (
        "study.yaml:16: scheduler: chunked_prefill_size 8192 is not a multiple of page_size 48"
    )


def test_key_with_a_line_break_is_shown_on_one_line(valid_text, error_of):
    """What a user writes cannot break the message into lines."""
    line = error_of(valid_text.replace("seed", '"se\\ned"'))
    assert line.startswith("study.yaml:2: se\\ned: unknown key")
    assert "\n" not in line


def test_file_that_is_not_text_is_refused(error_of):
    """Errors of the file itself come through loading."""
    assert error_of(b"name: \xff\n") == "study.yaml:1: not UTF-8 text"
    assert error_of("") == "study.yaml: is empty"
