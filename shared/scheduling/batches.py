"""How a claimed batch becomes provider requests: who is asked for whom, what rides together. Pure."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Question(msgspec.Struct, Generic[T], eq=False):
    """One question to a provider: asked for `leader`, answering `siblings` in an equal situation too."""

    leader: T
    siblings: list[T] = []


def ask_once(
    asks: Sequence[T], key: Callable[[T], Hashable | None], may_share: Callable[[T, T], bool]
) -> list[Question[T]]:
    """Join equal situations: asks with one key become one question where the rule lets them share its answer.

    `key` gives None for an ask that is never shared. `may_share(asker, leader)` is the sharing rule. The
    first ask of a key that nobody before it serves leads; order is kept.
    """
    questions: list[Question[T]] = []
    leaders: dict[Hashable, list[Question[T]]] = {}
    for ask in asks:
        situation = key(ask)
        equal = leaders.setdefault(situation, []) if situation is not None else []
        for question in equal:
            if may_share(ask, question.leader):
                question.siblings.append(ask)
                break
        else:
            question = Question(ask)
            questions.append(question)
            equal.append(question)
    return questions


@dataclass(frozen=True, slots=True)
class Caps:
    """What one request to a provider may hold."""

    max_questions: int
    max_request_tokens: int
    isolates_questions: bool
    request_tokens: int = 0  # what a request costs beside its text, in tokens


class Asked(msgspec.Struct, Generic[T], frozen=True):
    """A question as the planner sees it. Tokens are estimates of its own part."""

    question: T
    session: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One provider request. `shared_state`: all questions are of one session, whose state goes in once."""

    questions: list[T]
    shared_state: bool


def plan_calls(
    asked: Sequence[Asked[T]], session_tokens: Callable[[str], int], prefix_tokens: int, caps: Caps
) -> list[Call[T]]:
    """Cut questions of one lane into provider requests.

    `session_tokens(session)` is the size of one session's dynamic state, `prefix_tokens` that of the static
    text. Sessions ride together only where the provider isolates questions, and only those for which
    repeating their state with each question costs less than a request of their own. Every request
    keeps to the caps; a question that alone exceeds the token cap gets a request of its own, which the
    provider's adapter refuses before it is sent.
    """
    by_session: dict[str, list[Asked[T]]] = {}
    for one in asked:
        by_session.setdefault(one.session, []).append(one)
    if len(by_session) == 1 or not caps.isolates_questions:
        return [
            call
            for session, group in by_session.items()
            for call in _cut(group, prefix_tokens + session_tokens(session), caps, shared_state=True)
        ]
    calls: list[Call[T]] = []
    together: list[Asked[T]] = []
    for session, group in by_session.items():
        state_tokens = session_tokens(session)
        if (len(group) - 1) * state_tokens > prefix_tokens + caps.request_tokens:
            calls += _cut(group, prefix_tokens + state_tokens, caps, shared_state=True)
        else:
            together += [Asked(one.question, session, one.tokens + state_tokens) for one in group]
    if together:
        one_session = len({one.session for one in together}) == 1
        calls += _cut(together, prefix_tokens, caps, shared_state=one_session)
    return calls


def _cut(group: Sequence[Asked[T]], base_tokens: int, caps: Caps, *, shared_state: bool) -> list[Call[T]]:
    calls: list[Call[T]] = []
    questions: list[T] = []
    tokens = base_tokens
    for one in group:
        full = len(questions) >= caps.max_questions or tokens + one.tokens > caps.max_request_tokens
        if questions and full:
            calls.append(Call(questions, shared_state))
            questions, tokens = [], base_tokens
        questions.append(one.question)
        tokens += one.tokens
    if questions:
        calls.append(Call(questions, shared_state))
    return calls
