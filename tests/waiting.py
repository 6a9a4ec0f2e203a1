"""Waiting for what another process brings about, where there is nothing to await."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], Awaitable[bool]], timeout_s: float = 20.0) -> None:
    """Ask until `holds` says yes; raises TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not await holds():  # noqa: ASYNC110 -- another process sets no event of ours
            await asyncio.sleep(0.02)
