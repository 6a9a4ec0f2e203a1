"""The provider simulator as part of a stack: always at the same port, which the configuration names."""

import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from deploy.embedded.children import Child
from deploy.keeping import Kept
from deploy.roles import muster, spawn, until_answering

_LOOPBACK: Final = "127.0.0.1"
_PATIENCE_S: Final = 3.0


class SimulatorPlace:
    """Keeps one simulator running."""

    def __init__(self, env: Callable[[], Mapping[str, str]], changed: Callable[[], None]) -> None:
        """`env` makes the environment of a new process; `changed` hears of every new one."""
        # Bound and never listening: nobody else is given the port, and the simulator may still take it
        # (SO_REUSEADDR, socket(7)).
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((_LOOPBACK, 0))
        self._address: tuple[str, int] = self._port.getsockname()
        self._env = env
        self.place = Kept("provider-sim", self._start, changed, ending=signal.SIGTERM, patience_s=_PATIENCE_S)

    @property
    def url(self) -> str:
        """Its base address."""
        return "http://{}:{}".format(*self._address)

    async def _start(self) -> Child:
        argv = muster("provider-sim", "--host", _LOOPBACK, "--port", str(self._address[1]))
        # Its own ready line would be taken for the platform's where both outputs are read as one.
        child = spawn("provider-sim", argv, self._env(), stdout=subprocess.DEVNULL)
        with child.ended_on_failure():
            await until_answering(child, self._address, "/stats")
        return child
