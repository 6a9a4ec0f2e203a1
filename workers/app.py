"""The worker's composition root: builds stores, provider clients and the engine, claims until stopped."""

import asyncio
import os

import structlog

from shared.clock import SystemClock
from shared.config import Config
from shared.entropy import Entropy
from shared.internal_http import InternalServer
from shared.metrics import Metrics
from shared.process import essential, freeze
from shared.protocol.decision_ids import DecisionIds
from shared.protocol.secret_keys import SecretKeys
from shared.settings import Settings
from shared.store.answers import AnswerStore
from shared.store.connection import RedisConnection, open_connection
from shared.store.queue import DeadlineQueue
from shared.store.situations import SituationStore
from shared.store.statics import StaticStore
from workers.calls import Calls
from workers.claims import ClaimLoop
from workers.engine import Engine
from workers.flights import Flights
from workers.providers.client import ProviderClient
from workers.providers.transport import ProviderTransport
from workers.settlement import Settlement
from workers.situations import Situations
from workers.slots import Slots

START_S = 10.0  # how long Redis may take to be there at start

_log = structlog.get_logger(__name__)


class Worker:
    """One worker process."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self._settings = settings
        self._config = config
        self._metrics = Metrics()

    async def run(self, stop: asyncio.Event) -> None:
        """Claim until `stop` is set, then finish what is in hand. Raises StoreUnavailableError at start."""
        settings = self._settings
        connection = open_connection(settings.redis_url, settings.redis_client)
        await connection.wait_connected(START_S)
        transport = ProviderTransport()
        internal = InternalServer(lambda: connection.connected, self._metrics.registry)
        await internal.start(settings.internal_bind)
        claims = self._claims(connection, transport)
        heartbeat = essential(claims.heartbeat(), "heartbeat", stop)
        claiming = essential(claims.run(), "claims", stop)
        freeze()
        _log.info("worker claiming")
        try:
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((stopping, claiming), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            claims.stop()
            await claiming
            _log.info("worker drained")
        finally:
            for task in (claiming, heartbeat):
                task.cancel()
            await asyncio.gather(claiming, heartbeat, return_exceptions=True)
            await internal.stop()
            await transport.close()
            await connection.close()

    def _claims(self, connection: RedisConnection, transport: ProviderTransport) -> ClaimLoop:
        clock, config, metrics = SystemClock(), self._config, self._metrics
        queue = DeadlineQueue(connection)
        situation_store = SituationStore(connection)
        flights = Flights(AnswerStore(connection))
        freed = asyncio.Event()
        slots = {name: Slots(config.concurrency, freed) for name in config.providers}
        clients = {
            name: ProviderClient(name, provider, transport, os.environ)
            for name, provider in config.providers.items()
        }
        calls = Calls(clients, slots, config.routing, clock, metrics)
        engine = Engine(
            connection=connection,
            queue=queue,
            statics=StaticStore(connection),
            situations=Situations(situation_store),
            flights=flights,
            calls=calls,
            settlement=Settlement(
                connection=connection,
                queue=queue,
                situations=situation_store,
                flights=flights,
                ids=DecisionIds(SecretKeys.parse(self._settings.secret_keys), Entropy()),
                clock=clock,
                metrics=metrics,
            ),
            config=config,
            clock=clock,
            metrics=metrics,
        )
        return ClaimLoop(
            connection=connection,
            queue=queue,
            engine=engine,
            slots=slots,
            least_ms=calls.least_ms,
            freed=freed,
            config=config,
            clock=clock,
            worker=os.urandom(6).hex(),
        )
