"""The inside listener of every role: `/livez`, `/readyz` and `/metrics`, apart from the games' port."""

import os
import socket
from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared.errors import ConfigError
from shared.settings import host_port

_SETTING: Final = "MUSTER_INTERNAL_BIND"
_INHERITED: Final = "fd:"  # a listening socket that the supervisor made, so that it knows the port


class InternalServer:
    """Serves a role's health and metrics; says nothing by itself."""

    def __init__(self, ready: Callable[[], bool], registry: CollectorRegistry) -> None:
        """`ready` tells whether this process can do its work now; `registry` holds its metrics."""
        self._ready = ready
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self, bind: str) -> tuple[str, int]:
        """Listen on `bind` (`host:port`, port 0 for any free one, or `fd:N`) and return the address taken.

        Raises ConfigError where the address cannot be had.
        """
        listener = _listener(bind)
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        host, port = listener.getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="live\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ready\n") if self._ready() else web.Response(status=503, text="not ready\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


def _listener(bind: str) -> socket.socket:
    if bind.startswith(_INHERITED):
        return _inherited(bind.removeprefix(_INHERITED))
    host, port = host_port(bind, _SETTING)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"{_SETTING}: cannot listen on {bind}: {os.strerror(error.errno or 0)}") from error


def _inherited(number: str) -> socket.socket:
    try:
        return socket.socket(fileno=int(number))
    except (ValueError, OSError) as error:
        raise ConfigError(f"{_SETTING}: fd:{number} is no socket of this process") from error
