"""servetwin's own trace format."""

import pytest

from sim.core.tokens import stream_token_id

FULL = {
    "rid": "a",
    "arrival": 0.25,
    "segments": [[7, 20], [31, 12]],
    "output_len": 4,
    "output_ids": [5, 6, 7],
    "max_new_tokens": 64,
    "priority": 3,
    "output_seed": 9001,
    "ignore_eos": True,
    "tenant": "chat",
    "session": "s-7",
    "gives_up_after": 2.5,
}
LEAST = {"arrival": 1, "segments": [[7, 20]], "output_len": 4}


def test_servetwin_row_with_every_field_says_it_all(trace):
    """Each field is where it belongs."""
    (request,) = trace("servetwin", [FULL]).arrivals()
    spec = request.spec
    assert (spec.rid, spec.arrival_ns) == ("a", 250_000_000)
    assert (spec.tenant, spec.session) == ("chat", "s-7")
    assert spec.gives_up_ns == 2_500_000_000
    assert spec.prompt.segments == ((7, 20), (31, 12))
    assert (spec.max_new_tokens, spec.priority, spec.ignore_eos) == (64, 3, True)
    assert (request.script.num_tokens, request.script.seed) == (4, 9001)
    assert request.script.token_ids(2).tolist() == [5, 6]
    assert request.script.token_ids(4).tolist() == [5, 6, 7, stream_token_id(9001, 3)]


def test_servetwin_row_with_the_least_has_defaults(trace):
    """Row number as name, 2**20 plus it as output stream, the output's length as limit."""
    _, request = trace("servetwin", [LEAST, LEAST]).arrivals()
    spec = request.spec
    assert (spec.rid, spec.max_new_tokens, spec.tenant, spec.session) == ("1", 4, "", "")
    assert (spec.priority, spec.ignore_eos, spec.predicted_output_tokens) == (None, False, None)
    assert spec.gives_up_ns is None
    assert request.script.seed == 2**20 + 1


def test_servetwin_null_priority_is_none(trace):
    """As if the field were not there; 0 is a priority."""
    rows = [LEAST | {"priority": priority} for priority in (None, 0, -5)]
    workload = trace("servetwin", rows)
    assert [request.spec.priority for request in workload.arrivals()] == [None, 0, -5]


def test_servetwin_rows_need_not_be_in_order_of_time(trace):
    """Sorted by arrival; equal times keep the file's order, names and streams their row's."""
    rows = [LEAST | {"arrival": at} for at in (2, 1, 2, 0.5, 1)]
    requests = list(trace("servetwin", rows).arrivals())
    assert [request.spec.rid for request in requests] == ["3", "1", "4", "0", "2"]
    assert [r.script.seed - 2**20 for r in requests] == [3, 1, 4, 0, 2]


def test_servetwin_many_rows_at_a_time_keep_their_order(trace):
    """A hundred rows at two times: a sort that is not stable would shuffle them."""
    rows = [LEAST | {"arrival": 1 - i % 2} for i in range(100)]
    rids = [int(request.spec.rid) for request in trace("servetwin", rows).arrivals()]
    assert rids == [*range(1, 100, 2), *range(0, 100, 2)]


def test_servetwin_prompt_may_be_token_ids(trace):
    """Rows of both kinds may stand in one file."""
    by_ids = {"arrival": 2, "input_ids": [5, 0, 2**40], "output_len": 1}
    one, other, third = trace("servetwin", [LEAST, by_ids, LEAST | {"arrival": 3}]).arrivals()
    assert other.spec.prompt.token_ids().tolist() == [5, 0, 2**40]
    assert len(other.spec.prompt) == 3
    assert one.spec.prompt.segments == third.spec.prompt.segments == ((7, 20),)


def test_servetwin_number_as_name_is_text(trace):
    """`"rid": 12` and `"rid": "12"` are one name."""
    (request,) = trace("servetwin", [LEAST | {"rid": 12}]).arrivals()
    assert request.spec.rid == "12"


def test_servetwin_tenant_of_the_scenario_fills_in(trace):
    """A row's own tenant wins."""
    workload = trace("servetwin", [FULL, LEAST], tenant="rest")
    assert [request.spec.tenant for request in workload.arrivals()] == ["chat", "rest"]


def test_servetwin_exact_guess_knows_who_ignores_the_end(trace):
    """With `ignore_eos` the limit is generated, else the shorter of limit and output."""
    rows = [FULL, FULL | {"rid": "b", "ignore_eos": False}]
    workload = trace("servetwin", rows, predicted_output={"kind": "exact"})
    assert [r.spec.predicted_output_tokens for r in workload.arrivals()] == [64, 4]


KNOWN = (
    "rid, arrival, segments, input_ids, output_len, output_ids, max_new_tokens, priority, "
    "output_seed, ignore_eos, tenant, session, gives_up_after"
)
# (fields of the second row, the error line)
BAD = [
    ({"rid": "a"}, 'rid: "a" is used already on line 1'),
    ({"rid": ""}, 'rid: "" is neither text nor a whole number'),
    ({"rid": True}, "rid: true is neither text nor a whole number"),
    ({"rid": "a\nb"}, 'rid: "a\\nb" has characters that cannot be printed'),
    ({"rid": "\ud800"}, 'rid: "\\ud800" has characters that cannot be printed'),
    ({"tenant": 3}, "tenant: 3 is not text"),
    ({"session": 3}, "session: 3 is not text"),
    ({"tenant": "\x1b[2J"}, 'tenant: "\\u001b[2J" has characters that cannot be printed'),
    ({"arrival": -0.5}, "arrival: -0.5 is below 0"),
    ({"arrival": float("nan")}, "arrival: NaN is not a finite number"),
    ({"arrival": 5e9}, "arrival: 5000000000.0 is above 4611686018"),
    ({"output_len": 0}, "output_len: 0 is below 1"),
    ({"output_ids": [1, 2, 3, 4, 5]}, "output_ids: 5 tokens, above output_len"),
    ({"output_ids": [-1]}, "output_ids: -1 is below 0"),
    ({"max_new_tokens": 0}, "max_new_tokens: 0 is below 1"),
    ({"max_new_tokens": None}, "max_new_tokens: null is not a whole number"),
    ({"priority": 1.5}, "priority: 1.5 is not a whole number"),
    ({"output_seed": 2**32}, "output_seed: 4294967296 is above 4294967295"),
    ({"ignore_eos": 1}, "ignore_eos: 1 is not true or false"),
    ({"segments": []}, "segments: [] is not a list of [seed, length] pairs"),
    ({"segments": [7, 20]}, "segments: 7 is not a [seed, length] pair"),
    ({"segments": [[7]]}, "segments: [7] is not a [seed, length] pair"),
    ({"segments": [[-1, 20]]}, "segments: seed -1 is below 0"),
    ({"segments": [[2**32, 20]]}, "segments: seed 4294967296 is above 4294967295"),
    ({"segments": [[7, 0]]}, "segments: length 0 is below 1"),
    ({"segments": [[7, 2.0]]}, "segments: length 2.0 is not a whole number"),
    ({"segments": [[7, 10**7], [8, 1]]}, "segments: 10000001 tokens, above 10000000"),
    ({"input_ids": [1]}, "segments: segments and input_ids are both there; one of them is needed"),
    ({"outputlen": 4}, '"outputlen": unknown field (did you mean output_len?)'),
    ({"\x1b[2J": 4}, f'"\\u001b[2J": unknown field; known: {KNOWN}'),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_servetwin_bad_row_names_line_and_field(error_of, fields, reason):
    """The first row is sound."""
    assert error_of("servetwin", [FULL, LEAST | fields]) == f"t:2: {reason}"


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([], "input_ids: [] is not a list of token ids"),
        ("text", 'input_ids: "text" is not a list of token ids'),
        ([1, -1], "input_ids: -1 is below 0"),
        ([1, "2"], 'input_ids: "2" is not a whole number'),
        ([2**63], "input_ids: 9223372036854775808 is above 9223372036854775807"),
    ],
)
def test_servetwin_bad_token_ids_are_refused(error_of, ids, reason):
    """Whole numbers that fit 63 bits, at least one."""
    row = {"arrival": 1, "input_ids": ids, "output_len": 4}
    assert error_of("servetwin", [row]) == f"t:1: {reason}"


@pytest.mark.parametrize("key", ["arrival", "output_len"])
def test_servetwin_missing_field_is_named(error_of, key):
    """Arrival and output length have no default."""
    row = {name: value for name, value in LEAST.items() if name != key}
    assert error_of("servetwin", [row]) == f"t:1: {key}: missing"


def test_servetwin_without_a_prompt_is_refused(error_of):
    """Neither segments nor token ids."""
    assert error_of("servetwin", [{"arrival": 1, "output_len": 4}]) == (
        "t:1: segments: segments and input_ids are both missing; one of them is needed"
    )


def test_servetwin_default_name_that_is_taken_is_refused(error_of):
    """The second row's number is the first one's name."""
    reason = 'rid: "1" is used already on line 1'
    assert error_of("servetwin", [LEAST | {"rid": "1"}, LEAST]) == f"t:2: {reason}"
