"""Keeping a connection up: one owned task that opens it, waits for its loss and opens it again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from shared.errors import StoreReplyError, StoreUnavailableError

FIRST_DELAY_S: Final = 0.05
LAST_DELAY_S: Final = 1.0

_log = structlog.get_logger(__name__)

Session = Callable[[Callable[[], None]], Awaitable[None]]
"""One life of a connection: calls its argument once it works, ends by raising what ended it."""


class Backoff:
    """Delays between attempts: doubling, with jitter, lest the clients of one server come back as one."""

    def __init__(self, jitter: Callable[[float, float], float] = random.uniform) -> None:
        """`jitter` picks a number between two."""
        self._jitter = jitter
        self._failures = 0

    def after(self, lasted_s: float) -> float:
        """Seconds to wait after a session that worked for `lasted_s` (0: it never did).

        None after one of some length. A server that lets us in and hangs up at once is as good as down.
        """
        if lasted_s >= LAST_DELAY_S:
            self._failures = 0
            return 0.0
        delay = min(LAST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return self._jitter(delay / 2, delay)


class Keeper:
    """Runs sessions, one after the other, until closed. Owns the task that does."""

    def __init__(self, session: Session, where: str) -> None:
        """Starts at once; needs a running loop. `where` names the server in logs and errors."""
        self._session = session
        self._where = where
        self._backoff = Backoff()
        self._callbacks: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._established_at: float | None = None  # of the session that runs
        self._sessions = 0  # that were established
        self._failure: Exception | None = None
        self._closed = False
        self._tried = asyncio.Event()  # the first attempt has ended, one way or the other
        self._settled = asyncio.Event()  # established once, or refused by the server
        self._task = self._loop.create_task(self._run(), name=f"connection to {where}")
        self._task.add_done_callback(_tell_failure)

    def unavailable(self) -> StoreUnavailableError:
        """The error of a trip that finds nothing connected."""
        return StoreUnavailableError(f"{self._where}: {_words(self._failure)}")

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call it, from the loop, after every session but the first was established."""
        self._callbacks.append(callback)

    async def first_attempt(self, timeout_s: float) -> None:
        """Wait for the end of the first attempt, however it ends, or until the time is up."""
        if not self._tried.is_set():
            await _within(self._tried, timeout_s)

    async def wait_connected(self, timeout_s: float) -> None:
        """See `RedisConnection.wait_connected`."""
        await _within(self._settled, timeout_s)
        if not self._sessions or self._closed:
            raise self.unavailable() from self._failure

    async def close(self) -> None:
        """End the session and the task."""
        self._closed = True
        self._failure = StoreUnavailableError("closed")
        self._tried.set()
        self._settled.set()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._session(self._established)
            except (OSError, StoreUnavailableError, StoreReplyError) as exc:
                self._failed(exc)
            now = self._loop.time()
            lasted = 0.0 if self._established_at is None else now - self._established_at
            self._established_at = None
            await asyncio.sleep(self._backoff.after(lasted))

    def _established(self) -> None:
        self._established_at = self._loop.time()
        self._sessions += 1
        self._tried.set()
        self._settled.set()
        if self._sessions > 1:
            _log.info("connected again", server=self._where)
            for callback in self._callbacks:
                self._loop.call_soon(callback)  # what it raises goes to the loop's handler and ends nothing

    def _failed(self, exc: Exception) -> None:
        if self._established_at is not None or self._failure is None:
            _log.warning("not connected", server=self._where, reason=_words(exc))
        self._failure = exc
        self._tried.set()
        if isinstance(exc, StoreReplyError):
            self._settled.set()


def _tell_failure(task: "asyncio.Task[None]") -> None:
    """Only `close` ends it: anything else is a fault of ours, told now and not when it is collected."""
    if not task.cancelled() and task.exception() is not None:
        _log.critical("a connection is kept no longer", task=task.get_name(), exc_info=task.exception())


def _words(failure: Exception | None) -> str:
    if failure is None:
        return "not connected"
    return str(failure) or type(failure).__name__  # a TimeoutError says nothing


async def _within(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event or for the time to pass."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
