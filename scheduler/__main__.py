"""`python -m scheduler`: the log writer as a process of its own. Composition root."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack

import structlog
import uvloop

from scheduler.log_writer import LogWriter
from scheduler.spill import Spill
from shared.errors import ConfigError
from shared.internal_http import InternalServer
from shared.logs import configure_logs
from shared.metrics import Metrics
from shared.settings import Settings
from shared.store.connection import open_connection
from shared.store.log_stream import LogStream
from shared.store.log_tables import LogTables
from shared.store.postgres import Postgres

SHARD = 0  # the one shard of the queue

_log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Write the log until SIGTERM or SIGINT."""
    if settings.spill_dir is None:
        raise ConfigError("MUSTER_SPILL_DIR: must name a folder that outlives this process")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as closing:
        spill = Spill(settings.spill_dir)
        closing.callback(spill.close)
        postgres = await Postgres.open(settings.postgres_url, max_connections=1)
        closing.push_async_callback(postgres.close)
        connection = open_connection(settings.redis_url, settings.redis_client)
        closing.push_async_callback(connection.close)
        reader = connection.blocking()
        closing.push_async_callback(reader.close)
        metrics = Metrics()
        writer = LogWriter(LogStream(reader, SHARD, spill.owner), LogTables(postgres), spill, metrics)
        server = InternalServer(writer.ready, metrics.registry)
        closing.push_async_callback(server.stop)
        host, port = await server.start(settings.internal_bind)
        _log.info("log writer started", internal=f"{host}:{port}")
        await writer.run(stop)
    _log.info("log writer stopped")


def main() -> int:
    """Run with the settings of the environment; returns the exit code."""
    try:
        settings = Settings.from_env(os.environ)
        configure_logs("scheduler", settings.log_level)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except ConfigError as exc:
        sys.stderr.write(f"muster scheduler: {exc}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
