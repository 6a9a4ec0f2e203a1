"""What `POST /v1/decide` answers, and what it asks a provider for it, over the wire."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.decide_platform import ROUTED_GAME, DecidePlatform, Session, game_of
from tests.recording_provider import Given, ModelCall, answered
from tests.waiting import eventually

Json = Any

ACTIONS = {"idle": "Stay", "chase": "Run after the player", "flee": "Run away"}
BEE = {"fields": {"hp": "number"}, "actions": ACTIONS}
GUARD = {**BEE, "cache": {"key": ["hp"], "ttl_ms": 60_000}}
SLACK_S = 1.5  # of a busy machine, beyond a deadline


def asks(entity: str, kind: str = "bee", hp: float = 1, **keys: Json) -> dict[str, Json]:
    return {"id": entity, "type": kind, "observation": {"hp": hp}, "legal_actions": list(ACTIONS), **keys}


def questions(session: Session) -> list[str]:
    """The entities that the provider was asked about so far, in order."""
    return [entity for call in session.calls() for entity in call.entities]


def sources(decisions: dict[str, Json]) -> dict[str, str]:
    """By entity, AI or the fallback's code."""
    return {one["id"]: one.get("code", one["source"]) for one in decisions.values()}


@contextmanager
def held(session: Session) -> Iterator["Future[None]"]:
    """The provider keeps this session's calls waiting until the future has a result."""
    hold: Future[None] = Future()
    with session.platform.recorder.ordered(session.world, lambda call: Given(answered(call), hold=hold)):
        try:
            yield hold
        finally:
            if not hold.done():
                hold.set_result(None)


async def timed(session: Session, *entities: Json, timeout_ms: int | None = None) -> tuple[Json, float]:
    """The decisions and how many seconds they took."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    decisions = await session.decide(*entities, timeout_ms=timeout_ms)
    return decisions, loop.time() - started_s


async def test_a_decision_has_every_field(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": {**BEE, "decision_ttl_ms": 5000}}))
    with decide_platform.recorder.ordered(session.world, lambda c: Given(answered(c, {"b1": "chase"}))):
        decision = (await session.decide(asks("b1")))["b1"]
    assert decision.pop("decision_id").startswith("d_")
    assert decision == {
        "id": "b1",
        "source": "AI",
        "action": "chase",
        "label": "Run after the player",
        "confidence": pytest.approx((0.75 - 1 / 3) / (1 - 1 / 3)),
        "ttl_ms": 5000,
    }


async def test_one_legal_action_is_answered_without_a_provider(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE, "guard": GUARD}))
    decisions = await session.decide(
        asks("b1", legal_actions=["flee"]), asks("b2"), asks("g1", "guard", legal_actions=["idle"])
    )
    assert questions(session) == ["b2"]
    for entity, action in [("b1", "flee"), ("g1", "idle")]:
        decision = decisions[entity]
        assert (decision["source"], decision["action"], decision["confidence"]) == ("AI", action, 1)
        assert decision["decision_id"].startswith("d_")
        assert "cached" not in decision


async def test_what_one_session_asked_serves_another(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"guard": GUARD})
    first, second = [await decide_platform.opened(manifest) for _ in range(2)]
    with decide_platform.recorder.ordered(first.world, lambda call: Given(answered(call, {"g1": "chase"}))):
        asked = (await first.decide(asks("g1", "guard")))["g1"]
        assert "cached" not in asked
        reused = (await second.decide(asks("other", "guard")))["other"]
        again = (await first.decide(asks("g1", "guard")))["g1"]
    assert questions(first) == ["g1"]
    for decision in (reused, again):
        assert decision["cached"] is True
        assert {k: decision[k] for k in ("source", "action", "label", "confidence", "ttl_ms")} == {
            k: asked[k] for k in ("source", "action", "label", "confidence", "ttl_ms")
        }
    assert len({one["decision_id"] for one in (asked, reused, again)}) == 3


async def test_a_cached_decision_is_reported_like_any_other(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"guard": GUARD}))
    await session.decide(asks("g1", "guard"))
    reused = (await session.decide(asks("g2", "guard")))["g2"]
    await session.report(reused, outcome={"seconds": 2})
    await session.decide(asks("g2", "guard", hp=0.5))
    assert session.calls()[-1].question("g2").instructions["memory"] == [
        {"action": "idle", "status": "executed", "outcome": {"seconds": 2}}
    ]


async def test_another_game_with_the_same_manifest_asks_for_itself(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"guard": GUARD})
    for game in ("Wire", "Another"):
        session = await decide_platform.opened(manifest, game)
        assert "cached" not in (await session.decide(asks("g1", "guard")))["g1"]


async def test_a_cached_decision_lives_for_its_time(decide_platform: DecidePlatform) -> None:
    brief = {**BEE, "cache": {"key": ["hp"], "ttl_ms": 1000}}
    session = await decide_platform.opened(game_of({"guard": brief}))
    loop = asyncio.get_running_loop()
    await session.decide(asks("g1", "guard"))
    asked_s = loop.time()

    async def asked_anew() -> bool:
        return "cached" not in (await session.decide(asks("g1", "guard")))["g1"]

    await eventually(asked_anew, 10)
    assert loop.time() - asked_s > 0.8


async def test_equal_situations_in_a_batch_are_asked_once(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"guard": GUARD}))
    decisions = await session.decide(*(asks(f"g{n}", "guard", hp=n % 2) for n in range(6)))
    assert sorted(questions(session)) == ["g0", "g1"]
    assert sources(decisions) == {f"g{n}": "AI" for n in range(6)}
    assert [n for n in range(6) if decisions[f"g{n}"].get("cached")] == [2, 3, 4, 5]
    assert len({decision["decision_id"] for decision in decisions.values()}) == 6


async def test_equal_situations_without_a_cache_are_asked_each(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    decisions = await session.decide(*(asks(f"b{n}") for n in range(3)))
    assert questions(session) == ["b0", "b1", "b2"]
    assert not any("cached" in decision for decision in decisions.values())


REFUSAL = {"type": "refusal"}
STRANGE: dict[str, tuple[Json, str]] = {
    "refused": (REFUSAL, "refused"),
    "missing": (None, "invalid_choice"),
    "outside": ({"type": "choice", "choice": "dance", "probabilities": None}, "invalid_choice"),
    "not an object": ("flee", "invalid_choice"),
    "no choice": ({"type": "choice"}, "invalid_choice"),
    "other options": ({"type": "choice", "choice": "idle", "probabilities": {"idle": 1.0}}, "invalid_choice"),
}


@pytest.mark.parametrize("name", STRANGE)
async def test_a_strange_answer_is_its_entitys_alone(name: str, decide_platform: DecidePlatform) -> None:
    answer, code = STRANGE[name]
    session = await decide_platform.opened(game_of({"bee": BEE}))
    with decide_platform.recorder.ordered(
        session.world, lambda call: Given(answered(call, instead={"b2": answer}))
    ):
        decisions = await session.decide(asks("b1"), asks("b2"), asks("b3"))
    assert sources(decisions) == {"b1": "AI", "b2": code, "b3": "AI"}
    assert decisions["b2"]["reason"]
    assert decisions["b2"]["ttl_ms"] == 12_000
    assert not decisions["b2"].keys() & {"action", "decision_id", "label", "confidence", "cached"}


async def test_an_answer_without_probabilities_has_no_confidence(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    bare = {"type": "choice", "choice": "flee", "confidence": 0.9}
    with decide_platform.recorder.ordered(
        session.world, lambda call: Given(answered(call, instead={"b1": bare}))
    ):
        decision = (await session.decide(asks("b1")))["b1"]
    assert (decision["action"], decision["confidence"]) == ("flee", None)


@pytest.mark.parametrize("answer", [REFUSAL, None], ids=["refused", "missing"])
async def test_siblings_of_a_leader_without_an_answer_are_asked_for_themselves(
    answer: Json, decide_platform: DecidePlatform
) -> None:
    session = await decide_platform.opened(game_of({"guard": GUARD}))
    with decide_platform.recorder.ordered(
        session.world, lambda call: Given(answered(call, {"g2": "flee"}, {"g1": answer}))
    ):
        decisions = await session.decide(*(asks(f"g{n}", "guard") for n in (1, 2, 3)))
    assert [call.entities for call in session.calls()] == [["g1"], ["g2", "g3"]]
    code = "refused" if answer else "invalid_choice"
    assert sources(decisions) == {"g1": code, "g2": "AI", "g3": "AI"}
    assert not any("cached" in decision for decision in decisions.values())


async def test_input_over_its_budget_is_not_asked(decide_platform: DecidePlatform) -> None:
    talker = {"fields": {f"said{n}": "string" for n in range(6)}, "actions": ACTIONS, "max_input_tokens": 120}
    session = await decide_platform.opened(game_of({"talker": talker, "bee": BEE}))

    def says(entity: str, text: str) -> dict[str, Json]:
        observation = {f"said{n}": text for n in range(6)}
        return {**asks(entity, "talker"), "observation": observation}

    decisions = await session.decide(says("loud", "a" * 80), says("quiet", ""), asks("b1"))
    assert sources(decisions) == {"loud": "budget", "quiet": "AI", "b1": "AI"}
    assert sorted(questions(session)) == ["b1", "quiet"]


FAILURES: dict[str, Callable[[ModelCall], Given]] = {
    "400": lambda _: Given({"detail": {"error_type": "max_tokens_exceeded"}}, 400),
    "401": lambda _: Given({"detail": {"message": "no"}}, 401),
    "429": lambda _: Given({"detail": "slow down"}, 429, headers={"Retry-After": "1"}),
    "500": lambda _: Given({}, 500),
    "529": lambda _: Given({"detail": "overloaded"}, 529),
    "not JSON": lambda _: Given(b"<html>"),
    "cut off": lambda call: Given(str(answered(call)).encode()[:100]),
    "no answers": lambda _: Given({"model": "x"}),
    "redirect": lambda _: Given({}, 307, headers={"Location": "http://127.0.0.1:9/"}),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_call_that_fails_leaves_its_entities_unavailable(
    name: str, decide_platform: DecidePlatform
) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE, "guard": GUARD}))
    await session.decide(asks("g1", "guard"))
    with decide_platform.recorder.ordered(session.world, FAILURES[name]):
        decisions = await session.decide(
            asks("b1"), asks("g2", "guard"), asks("b2", legal_actions=["flee"]), asks("g3", "guard", hp=2)
        )
    assert sources(decisions) == {"b1": "unavailable", "g2": "AI", "b2": "AI", "g3": "unavailable"}
    assert decisions["g2"]["cached"] is True
    # The failure is not kept: the next one is asked anew.
    assert sources(await session.decide(asks("b1"), asks("g3", "guard", hp=2))) == {"b1": "AI", "g3": "AI"}


async def test_a_provider_whose_key_is_wrong_or_absent_is_unavailable(
    decide_platform: DecidePlatform,
) -> None:
    session = await decide_platform.opened(game_of({"keyless": BEE, "denied": BEE}), ROUTED_GAME)
    with decide_platform.recorder.ordered(session.world, lambda _: Given({}, 401)):
        decisions = await session.decide(asks("k", "keyless"), asks("d", "denied"))
    assert sources(decisions) == {"k": "unavailable", "d": "unavailable"}
    assert [(call.path, call.authorization) for call in session.calls()] == [("denied", "Bearer wrong")]


async def test_a_provider_that_takes_too_long_is_unavailable(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"hasty": BEE}), ROUTED_GAME)
    with held(session):
        decisions, took_s = await timed(session, asks("h", "hasty"))
    assert sources(decisions) == {"h": "unavailable"}
    assert 0.1 <= took_s < 0.1 + SLACK_S


async def test_a_provider_gets_as_many_questions_as_it_takes(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"small": BEE}), ROUTED_GAME)
    decisions = await session.decide(*(asks(f"s{n}", "small") for n in range(7)))
    assert set(sources(decisions).values()) == {"AI"}
    assert sorted(len(call.questions) for call in session.calls()) == [1, 3, 3]
    assert sorted(questions(session)) == [f"s{n}" for n in range(7)]


@pytest.mark.parametrize(("timeout_ms", "waits_s"), [(300, 0.3), (1, 0.05), (700, 0.7)])
async def test_the_callers_deadline_ends_a_call(
    timeout_ms: int, waits_s: float, decide_platform: DecidePlatform
) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    with held(session):
        decisions, took_s = await timed(session, asks("b1"), asks("b2"), timeout_ms=timeout_ms)
    assert set(sources(decisions).values()) <= {"unavailable", "busy"}
    assert waits_s - 0.01 <= took_s < waits_s + SLACK_S
    if waits_s > 0.2:
        assert set(sources(decisions).values()) == {"unavailable"}


async def test_the_shortest_life_of_a_decision_ends_the_wait(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": {**BEE, "decision_ttl_ms": 1000}}))
    with held(session):
        decisions, took_s = await timed(session, asks("b1"))
    assert sources(decisions) == {"b1": "unavailable"}
    assert 0.99 <= took_s < 1 + SLACK_S


async def test_what_still_waits_for_a_slot_at_its_deadline_is_busy(decide_platform: DecidePlatform) -> None:
    slots = 8  # two workers with four calls each
    blocking = [await decide_platform.opened(game_of({"bee": BEE})) for _ in range(slots)]
    late = await decide_platform.opened(game_of({"bee": BEE}))
    with ExitStack() as stack:
        for session in blocking:
            stack.enter_context(held(session))
        waits = [asyncio.create_task(session.decide(asks("b1"))) for session in blocking]

        async def all_asked() -> bool:
            return all(session.calls() for session in blocking)

        await eventually(all_asked)
        decisions, took_s = await timed(late, asks("b1"), timeout_ms=400)
    assert sources(decisions) == {"b1": "busy"}
    assert 0.39 <= took_s < 0.4 + SLACK_S
    assert late.calls() == []
    for decided in await asyncio.gather(*waits):
        assert sources(decided) == {"b1": "AI"}


@pytest.mark.parametrize("value", ["", "abc", "1.5", "1e3", "0x10", "--1", "50, 60"])
async def test_a_timeout_that_is_no_whole_number_is_refused(
    value: str, decide_platform: DecidePlatform
) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    reply = await decide_platform.post("/v1/decide", session.request([asks("b1")]), value)
    assert reply.status == 400
    assert "A2G-Timeout-Ms" in reply.json["error"]
    assert session.calls() == []


async def test_a_timeout_beyond_the_bounds_is_clamped(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    assert sources(await session.decide(asks("b1"), timeout_ms=10**30)) == {"b1": "AI"}
    with held(session):
        decisions, took_s = await timed(session, asks("b1"), timeout_ms=-(10**30))
    assert sources(decisions).keys() == {"b1"}
    assert 0.04 <= took_s < 0.05 + SLACK_S


async def test_many_requests_at_once_get_each_their_own_answers(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"bee": BEE})
    sessions = [await decide_platform.opened(manifest) for _ in range(30)]
    chosen = {f"{n}-{place}": list(ACTIONS)[(n + place) % 3] for n in range(30) for place in range(3)}
    with decide_platform.recorder.ordered(sessions[0].world, lambda call: Given(answered(call, chosen))):
        replies = await asyncio.gather(
            *(
                session.decide(*(asks(f"{n}-{place}") for place in range(3)))
                for n, session in enumerate(sessions)
            )
        )
    assert {one["id"]: one["action"] for reply in replies for one in reply.values()} == chosen
    assert Counter(questions(sessions[0])) == Counter(list(chosen))
    assert len(sessions[0].calls()) < 30
