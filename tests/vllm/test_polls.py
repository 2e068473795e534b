"""When a vLLM scheduler hears of the ends of transfers."""

from sim.vllm.pulling import Polls, Seen

A, B = Seen("a", is_lost=False), Seen("b", is_lost=True)


def note(polls, *events):
    for event in events:
        polls.note(event)


def test_polls_event_is_known_with_the_result_of_the_step_launched_after_it():
    polls = Polls(overlaps=False)
    assert polls.step_launched() == []
    note(polls, A)
    assert polls.step_ended() == []  # the workers had looked when that step was launched
    assert polls.step_launched() == []
    assert not polls.is_empty
    assert polls.step_ended() == [A]
    assert polls.is_empty


def test_polls_idle_server_knows_at_once():
    polls = Polls(overlaps=False)
    note(polls, A, B)
    assert polls.nothing_launched() == [A, B]
    assert polls.is_empty


def test_polls_empty_batch_waits_behind_the_step_in_flight():
    """vLLM takes its result in after the next decision."""
    polls = Polls(overlaps=True)
    assert polls.step_launched() == []
    note(polls, A)
    assert polls.nothing_launched() == []
    note(polls, B)
    assert polls.step_ended() == []
    assert polls.step_launched() == [A]
    assert polls.step_ended() == [B]


def test_polls_two_empty_batches_are_taken_in_one_by_one():
    polls = Polls(overlaps=True)
    polls.step_launched()
    note(polls, A)
    polls.nothing_launched()
    polls.step_ended()
    note(polls, B)
    assert polls.nothing_launched() == [A]
    assert polls.nothing_launched() == [B]
    assert polls.is_empty


def test_polls_older_versions_take_an_empty_batch_in_at_once():
    for fills_queue, known in ((True, []), (False, [A])):
        polls = Polls(overlaps=True, fills_queue=fills_queue)
        note(polls, A)
        assert polls.nothing_launched() == known


def test_polls_server_without_work_takes_in_the_empty_batch_in_the_queue():
    polls = Polls(overlaps=True, fills_queue=False)
    polls.step_launched()
    note(polls, A)
    polls.nothing_launched()
    polls.step_ended()
    note(polls, B)
    assert polls.nothing_asked() == [A]
    assert polls.nothing_asked() == []
    assert not polls.is_empty  # nobody has looked since B
