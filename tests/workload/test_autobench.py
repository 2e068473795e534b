"""SGLang's auto-benchmark data sets."""

import pytest


def row(**fields):
    return {"prompt": "What is a page?", "prompt_len": 4, "output_len": 7} | fields


def ids_of(workload):
    return [request.spec.prompt.token_ids().tolist() for request in workload.arrivals()]


def shared(one, other):
    """How many ids two lists agree on from the start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def test_autobench_text_has_the_stated_number_of_tokens(trace):
    """Without times all arrive at once; parameters of the API are left alone."""
    one, other = trace("autobench", [row(temperature=0.5), row(prompt_len=9)]).arrivals()
    assert (len(one.spec.prompt), len(other.spec.prompt)) == (4, 9)
    assert (one.spec.arrival_ns, other.spec.arrival_ns) == (0, 0)
    assert (one.script.num_tokens, one.spec.max_new_tokens) == (7, 7)


def test_autobench_times_count_from_the_earliest_row(trace):
    """Milliseconds of any epoch, sorted; equal ones keep the file's order."""
    rows = [row(timestamp=at) for at in (1700000000500, 1700000000000, 1700000000500.25)]
    requests = list(trace("autobench", rows).arrivals())
    assert [r.spec.rid for r in requests] == ["1", "0", "2"]
    assert [r.spec.arrival_ns for r in requests] == [0, 500_000_000, 500_250_000]


def test_autobench_token_ids_are_taken_as_they_are(trace):
    """As a list, or as text that holds one; they need no `prompt_len`."""
    rows = [{"prompt": [3, 1, 2], "output_len": 1}, {"prompt": "[3, 1, 2]", "output_len": 1}]
    assert ids_of(trace("autobench", rows)) == [[3, 1, 2], [3, 1, 2]]


@pytest.mark.parametrize(
    ("fields", "num_tokens"),
    [
        ({"output_len": 9, "max_tokens": 8}, 9),
        ({"max_tokens": 8, "completion_tokens": 6}, 8),
        ({"max_completion_tokens": 7, "completion_tokens": 6}, 7),
        ({"output_len": None, "completion_tokens": 6}, 6),
        ({}, 256),
    ],
)
def test_autobench_output_length_is_the_first_that_is_given(trace, fields, num_tokens):
    """SGLang's order of names, and its default."""
    (request,) = trace("autobench", [{"prompt": [1], **fields}]).arrivals()
    assert request.script.num_tokens == num_tokens


def test_autobench_texts_share_tokens_as_far_as_they_share_characters(trace):
    """Two texts of equal beginnings agree on about as much as they would as tokens."""
    head = "You are a helpful assistant. " * 40
    texts = [head + "What is a page?", head + "What is a block, then?", "Other" + head]
    rows = [row(prompt=text, prompt_len=len(text) // 4) for text in texts]
    one, other, third = ids_of(trace("autobench", rows))
    assert shared(one, other) == pytest.approx(len(head + "What is a ") / 4, rel=0.05)
    assert shared(one, third) == 0


def test_autobench_equal_texts_are_equal_and_different_texts_are_not(trace):
    """Also where they differ only past the last whole token."""
    same, again, other = ids_of(trace("autobench", [row(), row(), row(prompt="What is a page!")]))
    assert same == again
    assert same != other


def test_autobench_messages_share_with_the_conversation_that_goes_on(trace):
    """Three layouts of messages: `messages`, `prompt` and `prompt_origin`, as JSON or in text."""
    said = [{"role": "user", "content": "Tell me about pages. " * 20}]
    more = [*said, {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}]
    rows = [
        {"messages": said, "prompt_len": 100},
        {"prompt": more, "prompt_len": 120},
        {"prompt_origin": str(more).replace("'", '"'), "prompt_len": 120},
    ]
    first, second, third = ids_of(trace("autobench", rows))
    assert shared(first, second) > 90
    assert second == third


def test_autobench_old_layout_leaves_the_last_answer_out(trace):
    """A system prompt and turns: an even number of them ends with the answer."""
    rows = [
        {"system": "Be brief.", "content": ["Hi", "Hello!"], "prompt_len": 9},
        {"system": "Be brief.", "content": ["Hi"], "prompt_len": 9},
        {"system": "Be brief.", "content": ["Hi", "Hello!", "Bye"], "prompt_len": 9},
    ]
    with_answer, without, longer = ids_of(trace("autobench", rows))
    assert with_answer == without != longer


# (the second row, the error line)
BAD = [
    ({"prompt": "Hi"}, "prompt_len: missing, and there is no tokenizer to count the text"),
    ({"prompt_len": 4}, "prompt: missing"),
    ({"prompt": "", "prompt_len": 4}, "prompt: missing"),
    ({"prompt": [1, 2], "prompt_len": 3}, "prompt_len: is 3, but there are 2 token ids"),
    ({"prompt": [1, -2]}, "prompt: -2 is below 0"),
    ({"prompt": ["a", "b"], "prompt_len": 4},
     "prompt: prompts of several rounds are not supported"),
    ({"prompt": 3, "prompt_len": 4}, "prompt: 3 is neither text, nor messages, nor token ids"),
    (row(prompt_len=0), "prompt_len: 0 is below 1"),
    (row(output_len=-1), "output_len: -1 is below 1"),
    (row(output_len=2.5), "output_len: 2.5 is not a whole number"),
    (row(image_data=["x"]), "image_data: prompts with images are not supported"),
    (row(timestamp=5), "timestamp: some rows have one and some do not"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_autobench_bad_row_names_line_and_field(error_of, bad, reason):
    """The first row is sound and has no time."""
    assert error_of("autobench", [row(), bad]) == f"t:2: {reason}"
