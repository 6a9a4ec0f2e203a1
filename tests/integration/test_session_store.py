"""Session records on a real Valkey: opening again, changing contexts at the same time."""

import asyncio

import pytest

from shared.store.connection import RedisConnection
from shared.store.keys import SessionKeys
from shared.store.sessions import ContextUpdateResult, SessionRecord, SessionStore
from shared.store.situations import Reported, ReportedDecision, SituationStore, Snapshot
from tests.live_store import LiveStore

NOW = 1_750_000_000_000
SESSION = "0123abcd"


@pytest.fixture
def sessions(store_connection: RedisConnection) -> SessionStore:
    return SessionStore(store_connection)


def record(
    *, manifest: str = "m1", contexts: str = "c1", engine: str = "", at_ms: int = NOW
) -> SessionRecord:
    return SessionRecord("lango", "client", "local", manifest, f"sha256:{manifest}", "c1", engine, at_ms)


async def test_a_record_is_read_as_it_was_opened(sessions: SessionStore) -> None:
    assert await sessions.read(SESSION) is None
    version = await sessions.open(SESSION, record(engine="godot ü"))
    assert await sessions.read(SESSION) == SessionRecord(
        game="lango",
        client_id="client",
        profile="local",
        manifest_key="m1",
        manifest_hash="sha256:m1",
        contexts_hash="c1",
        engine="godot ü",
        created_ms=NOW,
        version=version,
    )


async def test_opening_again_replaces_the_record_and_keeps_what_happened(
    store_connection: RedisConnection, sessions: SessionStore
) -> None:
    situations = SituationStore(store_connection)
    reported = ReportedDecision("d1", NOW + 10_000, "boss", '{"a":1}')
    first = await sessions.open(SESSION, record())
    await situations.telemetry(SESSION, Snapshot(NOW, "cave", [("boss", "boss")], b"rows"))
    await situations.report(SESSION, NOW, reported)
    await store_connection.trip([situations.remember_command(SESSION, {"boss": b"roar"})])

    assert await sessions.open(SESSION, record(engine="unity", at_ms=NOW + 5)) > first
    read = await situations.read(SESSION, ["boss"])
    assert (read.snapshot, read.last, read.memory) == (b"rows", {"boss": b"roar"}, {"boss": '{"a":1}'})

    # Rows of another manifest's types mean nothing any more; what the entities did stays.
    await sessions.open(SESSION, record(manifest="m2", at_ms=NOW + 9))
    read = await situations.read(SESSION, ["boss"])
    assert (read.snapshot, read.last, read.memory) == (None, {"boss": b"roar"}, {"boss": '{"a":1}'})
    assert await situations.report(SESSION, NOW, reported) is Reported.REPEATED


async def test_opening_again_leaves_no_field_of_the_old_record(
    sessions: SessionStore, live_store: LiveStore
) -> None:
    await sessions.open(SESSION, record())
    fields = set(live_store.client.hkeys(SessionKeys(SESSION).session))
    live_store.client.hset(SessionKeys(SESSION).session, "of another release", "x")
    await sessions.open(SESSION, record())
    assert set(live_store.client.hkeys(SessionKeys(SESSION).session)) == fields


async def test_a_version_is_not_given_again_to_a_session_that_came_back(
    sessions: SessionStore, live_store: LiveStore
) -> None:
    first = await sessions.open(SESSION, record())
    live_store.client.flushall()
    assert await sessions.open(SESSION, record(at_ms=NOW + 1)) > first


async def test_of_context_changes_at_the_same_time_one_succeeds(sessions: SessionStore) -> None:
    version = await sessions.open(SESSION, record())
    results = await asyncio.gather(
        *(sessions.update_context(SESSION, version, f"new{number}") for number in range(10))
    )
    assert results[0] == ContextUpdateResult(True, version + 1)
    assert results[1:] == [ContextUpdateResult(False, version + 1)] * 9
    read = await sessions.read(SESSION)
    assert read is not None
    assert (read.contexts_hash, read.version) == ("new0", version + 1)


async def test_an_unknown_session_has_no_context_to_change(
    sessions: SessionStore, live_store: LiveStore
) -> None:
    assert await sessions.update_context(SESSION, 1, "c2") is None
    assert live_store.client.keys("*") == []


async def test_renewal_keeps_every_key_of_the_session(
    store_connection: RedisConnection, sessions: SessionStore, live_store: LiveStore
) -> None:
    await sessions.open(SESSION, record())
    await SituationStore(store_connection).telemetry(SESSION, Snapshot(NOW, "cave", [("e", "t")], b""))
    names = live_store.client.keys("*")
    for name in names:
        live_store.client.pexpire(name, 60_000)
    await store_connection.trip(sessions.renew_commands(SESSION))
    assert len(names) == 5
    assert all(live_store.client.pttl(name) > 3_000_000 for name in names)
    assert SessionKeys(SESSION).session.encode() in names
