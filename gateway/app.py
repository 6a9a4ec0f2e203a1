"""The gateway's composition root: builds the stores and use cases, serves until it is told to stop."""

import asyncio
import os
import socket
from ipaddress import ip_address

import structlog

from gateway.decide import DecideService
from gateway.http import Call, Edge, Route, UseCase
from gateway.lookup import Lookups
from gateway.replies import ReplyRouter
from gateway.reply import Reply, reply_json
from gateway.reports import TakeReport
from gateway.session_calls import OpenSession, UpdateContext
from gateway.sessions import Sessions
from gateway.telemetry import TakeTelemetry
from shared.clock import SystemClock
from shared.config import Config
from shared.entropy import Entropy
from shared.errors import ConfigError
from shared.internal_http import InternalServer
from shared.metrics import Metrics
from shared.process import essential, freeze
from shared.protocol.decision_ids import DecisionIds
from shared.protocol.limits import PROTOCOL_VERSION
from shared.protocol.secret_keys import SecretKeys
from shared.settings import Settings, host_port
from shared.store.answers import AnswerStore
from shared.store.connection import RedisConnection, open_connection
from shared.store.log_outbox import LogOutbox
from shared.store.queue import DeadlineQueue
from shared.store.sessions import SessionStore
from shared.store.situations import SituationStore
from shared.store.statics import StaticStore

DRAIN_S = 10.0  # connections that a game keeps open hear of the end with its next request
ANSWER_S = 31.0  # above the longest deadline of a decide request, 30 s (A2G-Timeout-Ms)
BACKLOG = 2048
FLUSH_S = 10.0  # how long a stopping gateway waits for a Redis that is away
START_S = 10.0  # how long Redis may take to be there at start

_log = structlog.get_logger(__name__)


class Gateway:
    """One gateway process."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self._settings = settings
        self._config = config
        self._metrics = Metrics()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises ConfigError, StoreUnavailableError at start."""
        settings = self._settings
        if settings.profile != "local":
            raise ConfigError("MUSTER_PROFILE: this version serves the local profile only")
        listener = _listener(settings)
        port = int(listener.getsockname()[1])
        connection = open_connection(settings.redis_url, settings.redis_client)
        await connection.wait_connected(START_S)
        blocking = connection.blocking()
        edge = Edge(self._routes(connection, blocking, stop), SystemClock(), port, self._metrics)
        internal = InternalServer(lambda: connection.connected, self._metrics.registry)
        await internal.start(settings.internal_bind)
        server = await asyncio.get_running_loop().create_server(edge.server, sock=listener, backlog=BACKLOG)
        freeze()
        _log.info("gateway serving", port=port)
        try:
            await stop.wait()
        finally:
            server.close()
            await edge.drain(DRAIN_S, ANSWER_S)
            await edge.close()
            await self._finish()
            _log.info("gateway drained")
            await internal.stop()
            await blocking.close()
            await connection.close()

    def _routes(
        self, connection: RedisConnection, blocking: RedisConnection, stop: asyncio.Event
    ) -> dict[tuple[str, str], Route]:
        clock, config, metrics = SystemClock(), self._config, self._metrics
        gateway = os.urandom(6).hex()
        queue = DeadlineQueue(connection)
        store = SessionStore(connection)
        situations = SituationStore(connection)
        outbox = LogOutbox(connection, queue.keys.log, queue.bounds.log_length, metrics)
        ids = DecisionIds(SecretKeys.parse(self._settings.secret_keys), Entropy())
        sessions = Sessions(
            connection=connection,
            store=store,
            statics=StaticStore(connection),
            outbox=outbox,
            config=config,
            clock=clock,
        )
        router = ReplyRouter(blocking, queue, gateway)
        decide = DecideService(
            sessions=sessions,
            lookups=Lookups(connection, store, situations, AnswerStore(connection)),
            connection=connection,
            queue=queue,
            situations=situations,
            router=router,
            outbox=outbox,
            ids=ids,
            config=config,
            clock=clock,
            metrics=metrics,
            gateway=gateway,
        )
        report = TakeReport(
            sessions=sessions,
            store=store,
            situations=situations,
            connection=connection,
            outbox=outbox,
            ids=ids,
            clock=clock,
            metrics=metrics,
        )
        telemetry = TakeTelemetry(
            sessions=sessions, store=store, situations=situations, connection=connection, metrics=metrics
        )
        self._outbox = outbox
        self._tasks = [essential(router.run(), "replies", stop), essential(outbox.run(), "outbox", stop)]
        table: tuple[tuple[str, str, UseCase], ...] = (
            ("GET", "/health", self._health),
            ("POST", "/v1/session", OpenSession(sessions)),
            ("POST", "/v1/context", UpdateContext(sessions)),
            ("POST", "/v1/decide", decide),
            ("POST", "/v1/report", report),
            ("POST", "/v1/telemetry", telemetry),
        )
        return {(method, path): Route(method, path, use_case) for method, path, use_case in table}

    async def _health(self, _call: Call) -> Reply:
        """Up, and what answers: the local profile may say so (A2G Overview, "Endpoints")."""
        provider = self._config.providers[self._config.routing["default"][0]]
        return reply_json(
            200,
            {
                "a2g": PROTOCOL_VERSION,
                "ok": True,
                "model": provider.model,
                "key_configured": not provider.needs_key or provider.key_env in os.environ,
            },
        )

    async def _finish(self) -> None:
        await self._outbox.drain(FLUSH_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _listener(settings: Settings) -> socket.socket:
    """The games' listening socket: handed on by the supervisor, or bound here. Loopback only.

    Raises ConfigError (A2G Security: a service must refuse non-loopback connections in the local profile).
    """
    if settings.listen_fd is not None:
        listener = socket.socket(fileno=settings.listen_fd)
    else:
        host, port = host_port(settings.bind, "MUSTER_BIND")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise ConfigError(f"MUSTER_BIND: {error.strerror}") from error
    if not ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise ConfigError("MUSTER_BIND: the local profile serves loopback addresses only")
    listener.setblocking(False)
    return listener
