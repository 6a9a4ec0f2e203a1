"""A session's situation on a real Valkey: population over scenes, memory, reports that come once."""

import asyncio

import pytest

from shared.store.connection import RedisConnection
from shared.store.keys import SessionKeys
from shared.store.sessions import SessionRecord, SessionStore
from shared.store.situations import Reported, ReportedDecision, SituationBounds, SituationStore, Snapshot
from tests.live_store import LiveStore

NOW = 1_750_000_000_000
SESSION = "0123abcd"


@pytest.fixture
async def situations(store_connection: RedisConnection) -> SituationStore:
    record = SessionRecord("lango", "client", "local", "m", "sha256:m", "c", "", NOW)
    await SessionStore(store_connection).open(SESSION, record)
    return SituationStore(store_connection)


def snapshot(at_ms: int, *entities: str, scene: str = "cave") -> Snapshot:
    """Entities named `type-number`."""
    rows = f"{at_ms}".encode()
    return Snapshot(at_ms, scene, [(name, name.partition("-")[0]) for name in entities], rows)


def reported(decision: str, entity: str, report: str = '{"n":1}') -> ReportedDecision:
    return ReportedDecision(decision, NOW + 60_000, entity, report)


async def test_distinct_ids_are_counted_from_the_scenes_beginning(situations: SituationStore) -> None:
    await situations.telemetry(SESSION, snapshot(NOW, "bee-1", "bee-2", "wolf-1"))
    await situations.telemetry(SESSION, snapshot(NOW + 1, "bee-2", "bee-3"))
    await situations.telemetry(SESSION, snapshot(NOW + 2, "bee-1"))
    assert (await situations.read(SESSION, ["-"])).seen == {"bee": 3, "wolf": 1}
    await situations.telemetry(SESSION, snapshot(NOW + 3, "bee-1", "bee-4", scene="field"))
    assert (await situations.read(SESSION, ["-"])).seen == {"bee": 2}


async def test_a_full_seen_set_counts_arrivals_and_never_those_who_stayed(
    store_connection: RedisConnection, situations: SituationStore, live_store: LiveStore
) -> None:
    situations = SituationStore(store_connection, bounds=SituationBounds(max_seen=2))
    for at in range(3):
        await situations.telemetry(SESSION, snapshot(NOW + at, "bee-1", "bee-2", "bee-3"))
    await situations.telemetry(SESSION, snapshot(NOW + 3, "bee-1"))
    await situations.telemetry(SESSION, snapshot(NOW + 4, "bee-1", "bee-2", "bee-3"))
    assert (await situations.read(SESSION, ["-"])).seen == {"bee": 4}  # bee-3 counts again
    assert live_store.client.scard(SessionKeys(SESSION).seen) == 2


async def test_a_snapshot_that_was_overtaken_is_ignored(situations: SituationStore) -> None:
    assert await situations.telemetry(SESSION, snapshot(NOW + 5, "bee-1")) is True
    assert await situations.telemetry(SESSION, snapshot(NOW + 4, "bee-2", scene="field")) is False
    read = await situations.read(SESSION, ["-"])
    assert (read.snapshot, read.seen) == (b"1750000000005", {"bee": 1})


async def test_the_last_eight_reports_are_an_entitys_memory(situations: SituationStore) -> None:
    for number in range(10):
        result = await situations.report(SESSION, NOW, reported(f"d{number}", "boss", f'{{"n":{number}}}'))
        assert result is Reported.REMEMBERED
    read = await situations.read(SESSION, ["boss", "other"])
    assert read.memory == {"boss": "\n".join(f'{{"n":{number}}}' for number in range(2, 10))}


async def test_a_decision_reported_by_many_at_once_is_remembered_once(situations: SituationStore) -> None:
    results = await asyncio.gather(
        *(situations.report(SESSION, NOW, reported("d", "boss")) for _ in range(20))
    )
    assert results.count(Reported.REMEMBERED) == 1
    assert results.count(Reported.REPEATED) == 19
    assert (await situations.read(SESSION, ["boss"])).memory == {"boss": '{"n":1}'}


async def test_used_ids_are_kept_no_longer_than_they_would_be_accepted(
    situations: SituationStore, live_store: LiveStore
) -> None:
    await situations.report(SESSION, NOW, reported("d1", "boss"))
    assert await situations.report(SESSION, NOW + 59_999, reported("d1", "boss")) is Reported.REPEATED
    await situations.report(SESSION, NOW + 60_000, ReportedDecision("d2", NOW + 99_000, "boss", "{}"))
    assert live_store.client.zrange(SessionKeys(SESSION).used, 0, -1) == [b"d2"]


async def test_leaving_telemetry_drops_memory_and_latest_decision(
    store_connection: RedisConnection, situations: SituationStore
) -> None:
    entities = ["bee-1", "bee-2", "squad"]
    await situations.telemetry(SESSION, snapshot(NOW, "bee-1", "bee-2"))
    for entity in entities:
        await situations.report(SESSION, NOW, reported(f"d-{entity}", entity))
    await store_connection.trip([situations.remember_command(SESSION, dict.fromkeys(entities, b"x"))])
    await situations.telemetry(SESSION, snapshot(NOW + 1, "bee-1"))
    read = await situations.read(SESSION, entities)
    assert read.last == {"bee-1": b"x", "squad": b"x"}  # a squad never was in telemetry
    assert read.memory == {"bee-1": '{"n":1}', "squad": '{"n":1}'}


async def test_a_report_about_the_departed_is_for_the_log_until_they_return(
    situations: SituationStore,
) -> None:
    await situations.telemetry(SESSION, snapshot(NOW, "bee-1"))
    await situations.telemetry(SESSION, snapshot(NOW + 1))
    assert await situations.report(SESSION, NOW, reported("d1", "bee-1")) is Reported.LOGGED_ONLY
    assert await situations.report(SESSION, NOW, reported("d1", "bee-1")) is Reported.REPEATED
    await situations.telemetry(SESSION, snapshot(NOW + 2, "bee-1"))
    assert await situations.report(SESSION, NOW, reported("d2", "bee-1")) is Reported.REMEMBERED
    assert (await situations.read(SESSION, ["bee-1"])).memory == {"bee-1": '{"n":1}'}


async def test_the_departed_are_known_for_a_while_and_not_all_of_them(
    store_connection: RedisConnection, situations: SituationStore, live_store: LiveStore
) -> None:
    bounds = SituationBounds(max_gone=2, gone_window_ms=1_000)
    situations = SituationStore(store_connection, bounds=bounds)

    async def gone_after(at_ms: int, *present: str) -> list[bytes]:
        await situations.telemetry(SESSION, snapshot(at_ms, *present))
        return live_store.client.zrange(SessionKeys(SESSION).gone, 0, -1)

    assert await gone_after(NOW, "bee-1", "bee-2", "bee-3") == []
    assert await gone_after(NOW + 1, "bee-2", "bee-3") == [b"bee-1"]
    assert await gone_after(NOW + 1_000, "bee-3") == [b"bee-1", b"bee-2"]
    assert await gone_after(NOW + 1_001, "bee-3") == [b"bee-2"]
    assert await gone_after(NOW + 1_002, "bee-4") == [b"bee-2", b"bee-3"]
    assert await gone_after(NOW + 1_003) == [b"bee-3", b"bee-4"]


async def test_memory_is_kept_for_a_bounded_number_of_entities(
    store_connection: RedisConnection, situations: SituationStore, live_store: LiveStore
) -> None:
    situations = SituationStore(store_connection, bounds=SituationBounds(max_entities=5))
    for number in range(12):
        await situations.report(SESSION, NOW, reported(f"d{number}", f"e{number}"))
        remembered = live_store.client.hkeys(SessionKeys(SESSION).mem)
        assert len(remembered) == min(5, number + 1)
        assert f"e{number}".encode() in remembered


async def test_entities_known_from_requests_count_until_the_next_snapshot(
    store_connection: RedisConnection, situations: SituationStore
) -> None:
    await store_connection.trip([situations.asked_command(SESSION, {"bee-1": b"row"})])
    assert (await situations.read(SESSION, ["-"])).asked == {"bee-1": b"row"}
    await situations.telemetry(SESSION, snapshot(NOW))
    assert (await situations.read(SESSION, ["-"])).asked == {}


async def test_a_hash_that_is_full_makes_room_for_what_comes(
    store_connection: RedisConnection, situations: SituationStore
) -> None:
    situations = SituationStore(store_connection, bounds=SituationBounds(max_entities=10))
    for number in range(30):
        decisions = {f"e{number}": b"x", f"f{number}": b"y"}
        await store_connection.trip([situations.remember_command(SESSION, decisions)])
        last = (await situations.read(SESSION, ["-"])).last
        assert len(last) == min(10, 2 * number + 2)
        assert decisions.items() <= last.items()


async def test_nothing_is_kept_for_a_session_that_is_not_there(
    store_connection: RedisConnection, live_store: LiveStore
) -> None:
    situations = SituationStore(store_connection)
    assert await situations.telemetry(SESSION, snapshot(NOW, "bee-1")) is None
    assert await situations.report(SESSION, NOW, reported("d", "boss")) is None
    assert live_store.client.keys("*") == []
