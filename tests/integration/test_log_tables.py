"""Every field of an entry arrives in its column, whatever it holds; twice is once."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from shared.decision_log import encode_entry
from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.log_rows import LogRows
from shared.store.log_tables import LogTables, is_data_error
from shared.store.postgres import Postgres
from tests.log_entries import AT_MS, HEAD, ROW, decision_entry, fallback_entry, report_entry, static_entry
from tests.postgres import PostgresServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[Postgres]:
    opened = await Postgres.open(database)
    yield opened
    await opened.close()


async def write(postgres: Postgres, *entries: object) -> dict[str, int]:
    rows = LogRows.of(entry if isinstance(entry, bytes) else encode_entry(entry) for entry in entries)  # type: ignore[arg-type]
    return await LogTables(postgres).write(rows, timeout_s=5)


async def only_row(postgres: Postgres, table: str) -> dict[str, object]:
    [row] = await postgres.fetch(f"SELECT * FROM {table}")  # noqa: S608
    return dict(row)


async def test_a_decision_arrives_whole(postgres: Postgres) -> None:
    await write(postgres, decision_entry("d_1"))
    head = msgspec.structs.asdict(HEAD)
    del head["at_ms"]
    expected = {"at": NOON, "decision_id": "d_1", **head, **msgspec.structs.asdict(ROW)}
    assert await only_row(postgres, "decisions") == expected


async def test_a_fallback_has_no_decision_id(postgres: Postgres) -> None:
    await write(postgres, fallback_entry("f_1", code="budget"))
    row = await only_row(postgres, "decisions")
    assert (row["id"], row["decision_id"], row["source"], row["code"]) == ("f_1", None, "FALLBACK", "budget")


async def test_a_report_arrives_whole(postgres: Postgres) -> None:
    entry = report_entry(
        local_prediction={"action": "flee", "confidence": 0.4}, policy_version="v3", at_ms=AT_MS
    )
    await write(postgres, entry)
    row = await only_row(postgres, "reports")
    assert str(row.pop("id")).startswith("r_")
    expected = msgspec.structs.asdict(entry)
    del expected["at_ms"]
    assert json.loads(str(row.pop("outcome"))) == expected.pop("outcome")
    assert json.loads(str(row.pop("local_prediction"))) == expected.pop("local_prediction")
    assert row == {"at": NOON, **expected}


async def test_texts_are_kept_once_for_a_game(postgres: Postgres) -> None:
    await write(
        postgres, static_entry(source="first"), static_entry(source="again"), static_entry(game="other")
    )
    await write(postgres, static_entry("contexts", "h2", "texts"), static_entry(source="later"))
    manifests = await postgres.fetch("SELECT game, hash, source FROM manifests ORDER BY game")
    assert [tuple(row) for row in manifests] == [("lango", "h1", "first"), ("other", "h1", "{}")]
    texts = await only_row(postgres, "static_texts")
    assert texts == {"game": "lango", "hash": "h2", "source": "texts", "first_at": NOON}


async def test_what_is_delivered_twice_is_stored_once(postgres: Postgres) -> None:
    entries = [
        decision_entry("d_1", "d_2"),
        fallback_entry("f_1"),
        report_entry(),
        report_entry(decision_id=None),
    ]
    first = await write(postgres, *entries, *entries)
    assert (first["decisions"], first["reports"]) == (3, 2)
    again = await write(postgres, *entries, decision_entry("d_3"))
    assert (again["decisions"], again["reports"]) == (1, 0)


async def test_hostile_text_loses_only_what_postgres_cannot_hold(postgres: Postgres) -> None:
    hostile = "a\0b\u202e'; DROP TABLE decisions; --\\x00\t\n\U0001f41d{}\ufffe"
    text_fields = [name for name, value in msgspec.structs.asdict(ROW).items() if isinstance(value, str)]
    row = dict.fromkeys(text_fields, hostile) | {
        "source": "AI",
        "legal_actions": [hostile, "\0"],
        "code": hostile,
    }
    head = {name: hostile for name, value in msgspec.structs.asdict(HEAD).items() if isinstance(value, str)}
    entry = decision_entry("x", **{name: value for name, value in row.items() if name != "id"})
    entry = msgspec.structs.replace(
        entry,
        head=msgspec.structs.replace(entry.head, **head),
        rows=[msgspec.structs.replace(entry.rows[0], id=hostile)],
    )
    report = report_entry(outcome={hostile: hostile}, local_prediction={"\0": "\\u0000"}, entity_id=hostile)
    await write(postgres, entry, report, static_entry(source=hostile, game=hostile, digest=hostile))
    stored = hostile.replace("\0", "")
    kept = await only_row(postgres, "decisions")
    assert {name for name, value in kept.items() if value == stored} == {
        *text_fields,
        *head,
        "code",
        "decision_id",
    } - {"source"}
    assert kept["legal_actions"] == [stored, ""]
    kept = await only_row(postgres, "reports")
    assert json.loads(str(kept["outcome"])) == {stored: stored}
    assert json.loads(str(kept["local_prediction"])) == {"": "\\u0000"}
    assert (await only_row(postgres, "manifests"))["source"] == stored


async def test_numbers_of_any_size_are_stored(postgres: Postgres) -> None:
    huge = (1 << 64) - 1
    entry = decision_entry(
        "d_1",
        input_tokens=huge,
        output_tokens=-(1 << 63),
        cost_nanousd=huge,
        latency_ms=1 << 40,
        probabilities=[float("nan"), 1e308, -0.0],
        confidence=float("inf"),
    )
    await write(postgres, entry, report_entry(outcome={"big": huge, "nan": float("nan"), "tiny": 5e-324}))
    row = await only_row(postgres, "decisions")
    assert (row["input_tokens"], row["output_tokens"]) == ((1 << 63) - 1, -(1 << 63))
    assert (row["cost_nanousd"], row["latency_ms"], row["confidence"]) == (
        (1 << 63) - 1,
        1 << 40,
        float("inf"),
    )
    outcome = json.loads(str((await only_row(postgres, "reports"))["outcome"]))
    assert outcome == {"big": huge, "nan": None, "tiny": 5e-324}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"not msgpack",
        encode_entry(decision_entry("d_1"))[:-1],
        encode_entry(decision_entry("d_1")) + b"x",
        encode_entry(decision_entry("d_1", at_ms=0)),
        encode_entry(decision_entry("d_1", at_ms=1 << 63)),
        encode_entry(report_entry(at_ms=-(1 << 63))),
        msgspec.msgpack.encode(["z", 1]),
    ],
)
async def test_what_is_no_entry_becomes_a_dead_letter(postgres: Postgres, raw: bytes) -> None:
    await write(postgres, decision_entry("d_0"), raw, raw)
    letter = await only_row(postgres, "dead_letters")
    assert letter["entry"] == raw
    assert letter["error"]
    assert (await only_row(postgres, "decisions"))["id"] == "d_0"


async def test_a_row_that_cannot_be_stored_is_told_from_a_server_in_trouble(postgres: Postgres) -> None:
    incompressible = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(3_000))
    with pytest.raises(StoreReplyError) as caught:
        await write(postgres, decision_entry(incompressible))
    assert is_data_error(caught.value)
    await postgres.fetch("DROP TABLE reports CASCADE")
    with pytest.raises(StoreReplyError) as caught:
        await write(postgres, report_entry())
    assert not is_data_error(caught.value)


async def test_a_failed_batch_leaves_nothing_behind(postgres: Postgres) -> None:
    await postgres.fetch("ALTER TABLE manifests ADD CHECK (hash <> 'bad')")
    with pytest.raises(StoreReplyError, match=r"^23514"):
        await write(postgres, decision_entry("d_1"), static_entry(digest="bad"))
    assert await postgres.fetch("SELECT FROM decisions") == []
    assert (await write(postgres, decision_entry("d_1")))["decisions"] == 1


def test_a_server_that_is_away_or_frozen_is_unavailable(own_postgres: PostgresServer) -> None:
    async def fails(postgres: Postgres) -> None:
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailableError):
            await LogTables(postgres).write(LogRows.of([encode_entry(decision_entry("d_1"))]), timeout_s=0.5)
        assert asyncio.get_running_loop().time() - started < 5

    async def story() -> None:
        postgres = await Postgres.open(own_postgres.url())
        await write(postgres, decision_entry("d_0"))
        own_postgres.freeze()
        await fails(postgres)
        await fails(postgres)
        own_postgres.thaw()
        await write(postgres, decision_entry("d_1"))
        await asyncio.to_thread(own_postgres.stop)
        await fails(postgres)
        await fails(postgres)
        await asyncio.to_thread(own_postgres.start)
        assert (await write(postgres, decision_entry("d_1")))["decisions"] == 0
        await postgres.close()

    asyncio.run(story())
