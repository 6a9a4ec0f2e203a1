"""What every role's process does at its start and end: settings, logs, signals, the event loop."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine

import structlog
import uvloop

from shared.errors import ConfigError, StoreUnavailableError
from shared.logs import configure_logs
from shared.settings import Settings

GC_THRESHOLD = 50_000  # allocations between two collections of the youngest generation

Role = Callable[[Settings, asyncio.Event], Awaitable[None]]

_log = structlog.get_logger(__name__)


def run_role(name: str, role: Role) -> int:
    """Run one role until SIGTERM or SIGINT; returns the process's exit code.

    0 after a drained stop; 1, with one line that says why, when it cannot start or its storage is away then.
    """
    try:
        settings = Settings.from_env(os.environ)
        configure_logs(name, settings.log_level)
        uvloop.run(_until_told(settings, role))
    except (ConfigError, StoreUnavailableError) as error:
        _log.error("cannot start", error=str(error))
        print(f"muster {name}: {error}", file=sys.stderr)  # noqa: T201 -- for whoever started it by hand
        return 1
    return 0


async def _until_told(settings: Settings, role: Role) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await role(settings, stop)


def freeze() -> None:
    """Call when a role has started: what it made lives as long as the process, so the collector skips it.

    A request's objects die by reference counts: looking for cycles after every 700 of them, as Python does
    by default, costs some 7 % of a busy worker and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def essential(work: Coroutine[None, None, None], name: str, stop: asyncio.Event) -> asyncio.Task[None]:
    """Start work that the role cannot do without; if it ends by a fault, the role stops to be started anew.

    A process that goes on without it would look alive and do nothing.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("essential work ended", work=name, exc_info=error)
            stop.set()

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(ended)
    return task
