"""A process that is kept: started again whenever it ends, replaced without a gap, ended in order."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from deploy.embedded.children import Child
from shared.errors import MusterError

_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # before the first, second … attempt; the last one stays
_STEADY_S: Final = 10.0  # what ran this long starts its back-off anew


class Kept:
    """One named place that always holds a running process, once begun."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Awaitable[Child]],
        changed: Callable[[], None],
        *,
        ending: signal.Signals = signal.SIGTERM,
        patience_s: float,
    ) -> None:
        """`start` returns when the new process can work and raises MusterError or OSError when it cannot.

        `ending` asks the process to drain, for which it has `patience_s`. `changed` hears of every new one.
        """
        self.name = name
        self.child: Child | None = None
        self._draining: set[Child] = set()
        self._start = start
        self._changed = changed
        self._ending = ending
        self._patience_s = patience_s

    async def begin(self) -> None:
        """Start a process and make it the place's own; raises what `start` raises."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        self.child = await self._start()
        took_s = round(loop.time() - since, 2)
        structlog.get_logger().info("process runs", process=self.name, child=self.child.pid, took_s=took_s)
        self._changed()

    async def keep(self) -> None:
        """For ever: wait for the end of the process and start another one."""
        log = structlog.get_logger()
        failures = 0
        loop = asyncio.get_running_loop()
        while (child := self.child) is not None:
            since = loop.time()
            code = await child.wait()
            if child is not self.child:  # replaced on purpose
                continue
            if loop.time() - since >= _STEADY_S:
                failures = 0
            delay_s = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
            failures += 1
            log.warning("process ended, starting it again", process=self.name, code=code, delay_s=delay_s)
            await asyncio.sleep(delay_s)
            try:
                await self.begin()
            except (MusterError, OSError) as error:
                log.warning("process could not be started", process=self.name, reason=str(error))

    async def replace(self) -> None:
        """Start another process beside this one and, when it can work, let this one drain and end."""
        old = self.child
        await self.begin()
        if old is not None:
            self._draining.add(old)
            await old.stop(self._ending, self._patience_s)
            self._draining.discard(old)

    async def end(self, hurry: asyncio.Event) -> None:
        """Let it drain and end; by force once `hurry` is set. Call when `keep` has been cancelled."""
        children = [child for child in (self.child, *self._draining) if child is not None]
        await asyncio.gather(*(self._end(child, hurry) for child in children))

    async def _end(self, child: Child, hurry: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(child.stop(self._ending, self._patience_s))
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait({stopping, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not stopping.done():
            await child.kill()
        await stopping
