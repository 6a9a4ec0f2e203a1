"""Periodic jobs: thin tasks around the store. All are idempotent; a failed one has its next turn."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from scheduler.celery_app import app
from shared.settings import Settings
from shared.store.log_tables import LogTables
from shared.store.postgres import Postgres

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@app.task(name="scheduler.jobs.create_partitions")
def create_partitions() -> None:
    """Make the log's partitions of today and the next days."""
    made = _with_log_tables(lambda tables, _settings: tables.create_partitions(datetime.now(UTC).date()))
    _log.info("log partitions are there", created=made)


@app.task(name="scheduler.jobs.drop_expired_partitions")
def drop_expired_partitions() -> None:
    """Drop the log's partitions that are older than MUSTER_LOG_RETENTION_DAYS."""
    dropped = _with_log_tables(
        lambda tables, settings: tables.drop_expired(datetime.now(UTC).date(), settings.log_retention_days)
    )
    _log.info("expired log partitions are gone", dropped=dropped)


def _with_log_tables(work: Callable[[LogTables, Settings], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        settings = Settings.from_env(os.environ)
        postgres = await Postgres.open(settings.postgres_url, max_connections=1)
        try:
            return await work(LogTables(postgres), settings)
        finally:
            await postgres.close()

    return asyncio.run(run())
