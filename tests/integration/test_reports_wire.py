"""How reports become memory, and which never do (A2G Report), read at the provider and in the log."""

from typing import Any

import asyncpg
import pytest

from tests.decide_platform import DecidePlatform, Session, game_of
from tests.waiting import eventually

Json = Any

ACTIONS = {"idle": "Stay", "chase": "Run after the player", "flee": "Run away"}
BEE = {"fields": {"hp": "number"}, "actions": ACTIONS}


def asks(entity: str, **keys: Json) -> dict[str, Json]:
    return {"id": entity, "type": "bee", "observation": {"hp": 1}, "legal_actions": list(ACTIONS), **keys}


async def opened(platform: DecidePlatform) -> Session:
    return await platform.opened(game_of({"bee": BEE}))


async def memory(session: Session, entity: str = "b1") -> list[Json]:
    """What the provider is told of the entity's past."""
    await session.decide(asks(entity))
    return list(session.calls()[-1].question(entity).instructions.get("memory", []))


async def decided(session: Session, entity: str = "b1") -> dict[str, Json]:
    return (await session.decide(asks(entity)))[entity]


async def accepted(session: Session, decision: dict[str, Json], **changes: Json) -> None:
    reply = await session.report(decision, **changes)
    assert (reply.status, reply.json) == (200, {"ok": True})


async def test_a_report_becomes_memory(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    decision = await decided(session)
    await accepted(
        session, decision, status="blocked", outcome={"hp_delta": -0.25, "seconds": 4.2, "won": True}
    )
    assert await memory(session) == [
        {
            "action": "idle",
            "status": "blocked",
            "outcome": {"hp_delta": -0.25, "seconds": 4.2, "won": True},
        }
    ]
    assert await memory(session, "b2") == []


async def test_only_the_last_eight_are_kept_oldest_first(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    for number in range(10):
        await accepted(session, await decided(session), outcome={"n": number})
    assert [one["outcome"]["n"] for one in await memory(session)] == [2, 3, 4, 5, 6, 7, 8, 9]


async def test_a_decision_is_remembered_once(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    decision = await decided(session)
    for number in range(3):
        await accepted(session, decision, outcome={"n": number})
    assert [one["outcome"] for one in await memory(session)] == [{"n": 0}]


async def test_ids_that_were_not_issued_for_this_are_ignored(decide_platform: DecidePlatform) -> None:
    session, other = await opened(decide_platform), await opened(decide_platform)
    mine, theirs = await decided(session), await decided(other)
    neighbour = await decided(session, "b2")
    issued = mine["decision_id"]
    flipped = issued[:-1] + ("A" if issued[-1] != "A" else "B")
    for forged in ("d_1", "d_", "x", issued.upper(), flipped, issued + "A", issued[:-4], "d_" + "A" * 34):
        await accepted(session, mine, decision_id=forged)
    await accepted(session, mine, decision_id=theirs["decision_id"])
    await accepted(session, mine, decision_id=neighbour["decision_id"])
    await accepted(session, mine, action="flee")
    await accepted(session, mine, entity_id="b3")
    for entity in ("b1", "b2", "b3"):
        assert await memory(session, entity) == []
    # None of that has used the id up.
    await accepted(session, mine)
    assert len(await memory(session)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "done"},
        {"outcome": {f"v{n}": n for n in range(13)}},
        {"outcome": {"v": [1]}},
        {"action": ""},
        {"decision_id": None},
        {"entity_id": "a\nb"},
    ],
)
async def test_a_wrong_report_is_refused_before_its_id_counts(
    changes: dict[str, Json], decide_platform: DecidePlatform
) -> None:
    session = await opened(decide_platform)
    decision = await decided(session)
    assert (await session.report(decision, **changes)).status == 400
    await accepted(session, decision)
    assert len(await memory(session)) == 1


async def logged(platform: DecidePlatform, session: Session) -> list[dict[str, Json]]:
    """The reports of this session that are in the log."""
    connection = await asyncpg.connect(platform.postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT * FROM reports WHERE client_id = $1 ORDER BY at", session.client_id
        )
        return [dict(row) for row in rows]
    finally:
        await connection.close()


async def test_a_local_decision_goes_to_the_log_alone(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    local = {"id": "b1", "decision_id": None, "action": "flee"}
    training = {"local_prediction": {"action": "idle", "confidence": 0.5}, "policy_version": "2026-10-12.3"}
    await accepted(session, local, source="LOCAL", outcome={"seconds": 1}, **training)
    assert await memory(session) == []

    async def there() -> bool:
        return bool(await logged(decide_platform, session))

    await eventually(there)
    (row,) = await logged(decide_platform, session)
    shown = {key: row[key] for key in ("decision_id", "entity_id", "action", "source", "remembered")}
    assert shown == {
        "decision_id": None,
        "entity_id": "b1",
        "action": "flee",
        "source": "LOCAL",
        "remembered": False,
    }
    assert row["policy_version"] == "2026-10-12.3"


async def test_a_report_joins_its_decision_in_the_log(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    decision = await decided(session)
    await accepted(session, decision, outcome={"n": 1})
    await accepted(session, decision, outcome={"n": 2})  # ignored: nothing of it is logged

    async def joined() -> int:
        connection = await asyncpg.connect(decide_platform.postgres_url)
        try:
            return int(
                await connection.fetchval(
                    "SELECT count(*) FROM reports JOIN decisions"
                    " USING (decision_id, client_id, entity_id, action) WHERE client_id = $1 AND remembered",
                    session.client_id,
                )
            )
        finally:
            await connection.close()

    async def there() -> bool:
        return await joined() == 1

    await eventually(there)
    assert len(await logged(decide_platform, session)) == 1


async def test_reopening_with_another_manifest_keeps_memory_and_used_ids(
    decide_platform: DecidePlatform,
) -> None:
    session = await opened(decide_platform)
    before = await decided(session)
    waiting = await decided(session)
    await accepted(session, before, outcome={"n": 1})
    manifest = game_of({"bee": {**BEE, "description": "Another text."}, "wasp": BEE})
    await session.open(manifest)
    session.world = str(manifest["world"])
    await accepted(session, before, outcome={"n": 2})
    await accepted(session, waiting, outcome={"n": 3})
    assert [one["outcome"]["n"] for one in await memory(session)] == [1, 3]


async def test_an_entity_that_left_telemetry_is_not_remembered(decide_platform: DecidePlatform) -> None:
    session = await opened(decide_platform)
    decision = await decided(session)
    await session.telemetry({"id": "b1", "type": "bee"}, {"id": "b2", "type": "bee"})
    await session.telemetry({"id": "b2", "type": "bee"})
    await accepted(session, decision)

    async def there() -> bool:
        return bool(await logged(decide_platform, session))

    await eventually(there)
    assert [row["remembered"] for row in await logged(decide_platform, session)] == [False]
    assert await memory(session) == []
