"""A provider that is out, refuses or answers nonsense: each fault has its code, and ends with its cause."""

import asyncio

import pytest

from tests.decision_ledger import require_complete_log
from tests.fault_platform import NO_FAULTS, Platform
from tests.game_load import Game, entity_codes, opened, playing, require_whole_replies
from tests.waiting import eventually


async def test_an_outage_is_answered_with_fallbacks_and_ends(platform: Platform) -> None:
    now = asyncio.get_running_loop().time

    async with playing(platform.url, "outage") as load:
        await platform.provider(outage_s=60)
        start_s = now()
        await load.answered(60)
        end_s = now()
        await platform.provider(outage_s=0)

        async def enough() -> bool:
            return len([one for one in load.exchanges if one.started_s > end_s + 1]) >= 24

        await eventually(enough)
    require_whole_replies(load.exchanges)
    uncached = [one for one in load.exchanges if one.kind == "bat"]
    during = [one for one in uncached if start_s + 0.1 < one.started_s and one.ended_s < end_s]
    assert {code for one in during for code in entity_codes([one])[:-1]} == {"unavailable"}
    assert {one.codes.pop() for one in during if len(one.codes) == 1} <= {"unavailable"}
    after = [one for one in load.exchanges if one.started_s > end_s + 1]
    assert set(entity_codes(after)) == {None}
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ({"drop_rate": 1}, "unavailable"),
        ({"error_rates": {"429": 1}}, "unavailable"),
        ({"error_rates": {"529": 1}}, "unavailable"),
        ({"error_rates": {"500": 1}}, "unavailable"),
        ({"error_rates": {"403": 1}}, "unavailable"),
        ({"missing_rate": 1}, "invalid_choice"),
        ({"latency_ms": 60_000}, "unavailable"),
    ],
    ids=str,
)
async def test_every_fault_has_its_code(platform: Platform, faults: dict[str, object], code: str) -> None:
    game = Game(platform.url, f"fault {faults}")
    async with opened(game):
        await platform.provider(**faults)
        failed = await game.decide(timeout_ms=800)
        await platform.provider(**NO_FAULTS)
        after = await game.decide()
    require_whole_replies([failed, after])
    assert entity_codes([failed]) == [code, code, None]
    assert entity_codes([after]) == [None, None, None]
    assert await require_complete_log(platform.postgres_url, game.exchanges) == []


async def test_a_spoilt_reply_is_unavailable_and_a_spoilt_answer_an_invalid_choice(
    platform: Platform,
) -> None:
    game = Game(platform.url, "malformed")
    async with opened(game):
        await platform.provider(malformed_rate=1)  # in one of five ways, by chance: two spoil each answer
        spoilt = [await game.decide() for _ in range(20)]
        await platform.provider(malformed_rate=0)
        after = await game.decide()
    require_whole_replies(game.exchanges)
    codes = [tuple(entity_codes([one])) for one in spoilt]
    assert set(codes) == {("unavailable", "unavailable", None), ("invalid_choice", "invalid_choice", None)}
    assert entity_codes([after]) == [None, None, None]
    assert await require_complete_log(platform.postgres_url, game.exchanges) == []
