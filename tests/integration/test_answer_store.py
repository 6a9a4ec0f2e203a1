"""Asking once on a real Valkey: many askers at the same moment, lapsed flights, scopes."""

import asyncio

import pytest

from shared.scheduling.sharing import CacheScope
from shared.store.answers import AnswerStore, Asked, Cached, Ending, Wait
from shared.store.connection import RedisConnection
from shared.store.keys import GameKeys
from tests.live_store import LiveStore
from tests.waiting import eventually

GAME, SESSION, DIGEST = CacheScope.GAME, CacheScope.SESSION, b"d" * 16


@pytest.fixture
def answers(store_connection: RedisConnection) -> AnswerStore:
    return AnswerStore(store_connection)


async def test_of_two_hundred_askers_one_asks(answers: AnswerStore) -> None:
    looks = await asyncio.gather(
        *(answers.ask_once(GAME, "lango", f"s{n}", [DIGEST], f"w{n}", 5_000) for n in range(200))
    )
    assert looks.count([Asked()]) == 1
    assert looks.count([Wait()]) == 199
    leader = f"w{looks.index([Asked()])}"
    assert await answers.answer_once(GAME, "lango", "", leader, [Ending(DIGEST, b"flee", 5_000)]) == 1
    assert await answers.ask_once(GAME, "lango", "s", [DIGEST], "w", 5_000) == [Cached(b"flee")]


async def test_a_leader_that_lets_go_leaves_the_question_to_a_follower(answers: AnswerStore) -> None:
    assert await answers.ask_once(GAME, "lango", "", [DIGEST], "leader", 5_000) == [Asked()]
    assert await answers.ask_once(GAME, "lango", "", [DIGEST], "follower", 5_000) == [Wait()]
    await answers.answer_once(GAME, "lango", "", "leader", [Ending(DIGEST)])
    assert await answers.ask_once(GAME, "lango", "", [DIGEST], "follower", 5_000) == [Asked()]


async def test_a_leader_that_falls_silent_is_forgotten(answers: AnswerStore, live_store: LiveStore) -> None:
    await answers.ask_once(GAME, "lango", "", [DIGEST], "silent", 30)

    async def lapsed() -> bool:
        return not live_store.client.exists(GameKeys("lango").flight(DIGEST))

    await eventually(lapsed)
    assert await answers.ask_once(GAME, "lango", "", [DIGEST], "next", 5_000) == [Asked()]
    # What the silent one says late ends nobody else's flight.
    assert await answers.answer_once(GAME, "lango", "", "silent", [Ending(DIGEST)]) == 0
    assert await answers.ask_once(GAME, "lango", "", [DIGEST], "third", 5_000) == [Wait()]


async def test_a_session_scope_is_read_by_that_session_alone(answers: AnswerStore) -> None:
    await answers.answer_once(SESSION, "lango", "s1", "w", [Ending(DIGEST, b"flee", 5_000)])
    assert await answers.ask_once(SESSION, "lango", "s1", [DIGEST], "w", 5_000) == [Cached(b"flee")]
    assert await answers.ask_once(SESSION, "lango", "s2", [DIGEST], "w", 5_000) == [Asked()]
    assert await answers.ask_once(GAME, "lango", "s1", [DIGEST], "w", 5_000) == [Asked()]
    assert await answers.ask_once(GAME, "other", "s1", [DIGEST], "w", 5_000) == [Asked()]


async def test_an_answer_is_reused_no_longer_than_allowed(
    answers: AnswerStore, store_connection: RedisConnection
) -> None:
    await answers.answer_once(GAME, "lango", "", "w", [Ending(DIGEST, b"flee", 30)])

    async def forgotten() -> bool:
        (reply,) = await store_connection.trip([answers.cached_command(GAME, "lango", "", [DIGEST])])
        return answers.parse_cached(reply) == [None]

    await eventually(forgotten)
