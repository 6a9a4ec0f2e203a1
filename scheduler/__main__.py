"""`python -m scheduler`: the log writer as a process of its own. Composition root."""

import asyncio
import sys
from contextlib import AsyncExitStack

import structlog

from scheduler.log_writer import LogWriter
from scheduler.spill import Spill
from shared.errors import ConfigError, StoreUnavailableError
from shared.internal_http import InternalServer
from shared.metrics import Metrics
from shared.process import run_role
from shared.settings import Settings
from shared.store.connection import RedisConnection, open_connection
from shared.store.log_stream import LogStream
from shared.store.log_tables import LogTables
from shared.store.postgres import Postgres

SHARD = 0  # the one shard of the queue
START_S = 5.0  # how long to wait for Redis before going on without it

_log = structlog.get_logger(__name__)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Write the log until `stop` is set; Redis and Postgres may be away, also at the start."""
    if settings.spill_dir is None:
        raise ConfigError("MUSTER_SPILL_DIR: must name a folder that outlives this process")
    async with AsyncExitStack() as closing:
        spill = Spill(settings.spill_dir)
        closing.callback(spill.close)
        postgres = await Postgres.open(settings.postgres_url, max_connections=1)
        closing.push_async_callback(postgres.close)
        # Its reads block, so the connection is the log writer's own.
        connection = open_connection(settings.redis_url, settings.redis_client)
        closing.push_async_callback(connection.close)
        metrics = Metrics()
        writer = LogWriter(LogStream(connection, SHARD, spill.owner), LogTables(postgres), spill, metrics)
        server = InternalServer(writer.ready, metrics.registry)
        closing.push_async_callback(server.stop)
        host, port = await server.start(settings.internal_bind)
        await _wait_a_little(connection)
        _log.info("log writer started", internal=f"{host}:{port}")
        await writer.run(stop)
    _log.info("log writer stopped")


async def _wait_a_little(connection: RedisConnection) -> None:
    try:
        await connection.wait_connected(START_S)
    except StoreUnavailableError as error:
        _log.warning("Redis is away", error=str(error))


def main() -> int:
    """Write until told to stop; returns the exit code."""
    return run_role("scheduler", run)


if __name__ == "__main__":
    sys.exit(main())
