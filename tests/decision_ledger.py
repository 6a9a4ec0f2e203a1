"""What games were told, against what the decision log holds."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import asyncpg

from tests.game_load import Exchange

Place = tuple[str, int, str]  # client id, epoch, entity: one answer each


class Row(NamedTuple):
    """One row of the log, or one answer in the same form. The decision id of a fallback is ""."""

    client_id: str
    epoch: int
    entity: str
    source: str
    code: str
    action: str
    decision_id: str

    @property
    def place(self) -> Place:
        return self.client_id, self.epoch, self.entity


def told(exchanges: Iterable[Exchange]) -> list[Row]:
    """What the games were told."""
    return [
        Row(
            one.sent["client_id"],
            one.sent["epoch"],
            decision["id"],
            decision["source"],
            decision.get("code", ""),
            decision.get("action", ""),
            decision.get("decision_id", ""),
        )
        for one in exchanges
        if one.status == 200
        for decision in one.decisions
    ]


async def logged(postgres_url: str, client_ids: Iterable[str]) -> list[Row]:
    """What the log holds of these games."""
    connection = await asyncpg.connect(postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT client_id, epoch, entity_id, source, coalesce(code, ''), coalesce(action, ''),"
            " coalesce(decision_id, '') FROM decisions WHERE client_id = ANY($1)",
            list(client_ids),
        )
    finally:
        await connection.close()
    return [Row(*row) for row in rows]


async def require_complete_log(
    postgres_url: str, exchanges: Iterable[Exchange], within_s: float = 30.0
) -> list[Row]:
    """Wait until everything that games were told is in the log exactly once; returns what nobody was told.

    Such a row is a decision that was paid for and came too late: its gateway could not take the question back
    before it gave the entity up as `unavailable`. There is at most one for an answer.
    """
    expected = Counter(told(exchanges))
    clients = {row.client_id for row in expected}
    assert expected
    assert max(expected.values()) == 1
    rows: Counter[Row] = Counter()
    try:
        async with asyncio.timeout(within_s):
            while expected - rows:
                rows = Counter(await logged(postgres_url, clients))
                await asyncio.sleep(0.05)
    except TimeoutError:
        missing = sorted(expected - rows)
        raise AssertionError(f"{len(missing)} rows are missing, such as {missing[:3]}") from None
    answers = {row.place: row for row in expected}
    extra = sorted((rows - expected).elements())
    for row in extra:
        assert row.source == "AI", row
        assert answers[row.place].code == "unavailable", (row, answers[row.place])
    assert not [place for place, count in Counter(row.place for row in extra).items() if count > 1]
    return extra
