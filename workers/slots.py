"""Provider slots of one worker: how many calls may be in flight, and a sign when one comes free."""

import asyncio
from collections import deque


class Slots:
    """Slots of one provider."""

    def __init__(self, count: int, freed: asyncio.Event) -> None:
        """`freed` is set whenever a slot comes free."""
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._freed = freed

    @property
    def available(self) -> bool:
        """Whether a call could start at once."""
        return self._free > 0

    def take(self) -> bool:
        """Take a slot if one is free; whether it was."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Take a slot, waiting for one in turn."""
        if self.take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot had been handed over already
            raise

    def release(self) -> None:
        """Give a slot back: to the next in turn, else it comes free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
        self._freed.set()
