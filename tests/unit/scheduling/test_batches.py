"""Joining equal situations, and cutting questions into provider requests."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.scheduling.batches import Asked, Caps, ask_once, plan_calls

WIDE = Caps(max_questions=64, max_request_tokens=100_000, isolates_questions=True)


def asked(session: str, name: str, tokens: int = 100) -> Asked[str]:
    return Asked(name, session, tokens)


def test_equal_situations_become_one_question() -> None:
    questions = ask_once(["a1", "b1", "a2", "a3"], key=lambda ask: ask[0], may_share=lambda *_: True)
    assert [(q.leader, q.siblings) for q in questions] == [("a1", ["a2", "a3"]), ("b1", [])]


def test_asks_without_a_key_are_never_joined() -> None:
    questions = ask_once(["x", "x"], key=lambda _: None, may_share=lambda *_: True)
    assert [(q.leader, q.siblings) for q in questions] == [("x", []), ("x", [])]


def test_an_ask_that_may_not_share_leads_its_own_question() -> None:
    questions = ask_once(["a1", "a2", "a3"], key=lambda ask: ask[0], may_share=lambda asker, _: asker == "a3")
    assert [(q.leader, q.siblings) for q in questions] == [("a1", ["a3"]), ("a2", [])]


def test_one_session_shares_its_state() -> None:
    calls = plan_calls([asked("s", "q1"), asked("s", "q2")], lambda _: 50, 200, WIDE)
    assert [(call.questions, call.shared_state) for call in calls] == [(["q1", "q2"], True)]


def test_sessions_with_one_question_each_ride_together() -> None:
    calls = plan_calls([asked("s", "q1"), asked("t", "q2")], lambda _: 50, 200, WIDE)
    assert [(call.questions, call.shared_state) for call in calls] == [(["q1", "q2"], False)]


def test_a_session_whose_state_would_be_repeated_too_often_goes_alone() -> None:
    # 5 questions repeat 100 tokens of state 4 times: 400, more than the 200 of static text sent again.
    group = [asked("big", f"b{i}") for i in range(5)]
    calls = plan_calls([*group, asked("s", "q1"), asked("t", "q2")], lambda _: 100, 200, WIDE)
    assert [(call.questions, call.shared_state) for call in calls] == [
        (["b0", "b1", "b2", "b3", "b4"], True),
        (["q1", "q2"], False),
    ]


def test_at_equal_cost_sessions_ride_together() -> None:
    group = [asked("big", f"b{i}") for i in range(3)]
    calls = plan_calls([*group, asked("s", "q1")], lambda _: 100, 200, WIDE)
    assert [(call.questions, call.shared_state) for call in calls] == [(["b0", "b1", "b2", "q1"], False)]


def test_a_request_of_its_own_costs_more_than_its_text() -> None:
    # 300 tokens of repeated state against 200 of static text and 150 for the request itself.
    caps = Caps(64, 100_000, isolates_questions=True, request_tokens=150)
    group = [asked("big", f"b{i}") for i in range(4)]
    calls = plan_calls([*group, asked("s", "q1")], lambda _: 100, 200, caps)
    assert [call.questions for call in calls] == [["b0", "b1", "b2", "b3", "q1"]]
    caps = Caps(64, 100_000, isolates_questions=True, request_tokens=99)
    calls = plan_calls([*group, asked("s", "q1")], lambda _: 100, 200, caps)
    assert [call.questions for call in calls] == [["b0", "b1", "b2", "b3"], ["q1"]]


def test_a_provider_that_does_not_isolate_gets_one_session_a_request() -> None:
    caps = Caps(max_questions=64, max_request_tokens=100_000, isolates_questions=False)
    calls = plan_calls([asked("s", "q1"), asked("t", "q2"), asked("s", "q3")], lambda _: 0, 0, caps)
    assert [(call.questions, call.shared_state) for call in calls] == [(["q1", "q3"], True), (["q2"], True)]


def test_the_question_cap_cuts() -> None:
    caps = Caps(max_questions=2, max_request_tokens=100_000, isolates_questions=True)
    calls = plan_calls([asked("s", f"q{i}") for i in range(5)], lambda _: 0, 0, caps)
    assert [call.questions for call in calls] == [["q0", "q1"], ["q2", "q3"], ["q4"]]


def test_the_token_cap_counts_static_text_state_and_questions() -> None:
    caps = Caps(max_questions=64, max_request_tokens=450, isolates_questions=True)
    calls = plan_calls([asked("s", f"q{i}") for i in range(3)], lambda _: 50, 200, caps)
    assert [call.questions for call in calls] == [["q0", "q1"], ["q2"]]


def test_a_question_over_the_cap_goes_alone() -> None:
    caps = Caps(max_questions=64, max_request_tokens=100, isolates_questions=True)
    calls = plan_calls([asked("s", "q0", 500), asked("s", "q1", 10)], lambda _: 0, 0, caps)
    assert [call.questions for call in calls] == [["q0"], ["q1"]]


@given(
    st.lists(st.tuples(st.sampled_from("stuv"), st.integers(1, 400)), max_size=40),
    st.integers(0, 300),
    st.integers(0, 500),
    st.integers(1, 10),
    st.integers(1, 2000),
    st.booleans(),
)
def test_every_question_is_asked_once_within_the_caps_and_the_isolation_rule(
    sizes: list[tuple[str, int]], state: int, prefix: int, questions: int, tokens: int, isolates: bool
) -> None:
    group = [Asked((session, i), session, size) for i, (session, size) in enumerate(sizes)]
    caps = Caps(questions, tokens, isolates)
    calls = plan_calls(group, lambda _: state, prefix, caps)
    assert Counter(q for call in calls for q in call.questions) == Counter(one.question for one in group)
    for call in calls:
        sessions = {session for session, _ in call.questions}
        assert len(call.questions) <= questions
        assert len(sessions) == 1 or (isolates and not call.shared_state)
        size = prefix + sum(sizes[i][1] for _, i in call.questions)
        size += state if call.shared_state else state * len(call.questions)
        assert size <= tokens or len(call.questions) == 1
