"""`muster up`: every process of the platform on one machine, started together and ended in order."""

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import structlog

from deploy.data_dir import DataDirectory, write_private
from deploy.embedded.children import Child
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from deploy.keeping import Kept
from deploy.roles import Role, celery, launch, muster, role_environment, spawn
from deploy.simulator import SimulatorPlace
from deploy.stack import Process, Stack, remove_stack, write_stack
from shared.config import default_config
from shared.errors import MusterError

_BROKER_DATABASE: Final = 1  # Celery's keys apart from ours
_DRAIN_S: Final = 45.0  # a gateway's idle connections (10 s), then the longest request in flight (31 s)
_WRITE_S: Final = 20.0  # for what still has to reach the disk
_JOB_S: Final = 10.0  # a periodic job takes seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line."""

    config: Path | None  # None: everything goes to the provider simulator
    profile: str
    workers: int
    gateways: int


class Supervisor:
    """Owns the processes of one stack from their start to their end."""

    def __init__(self, plan: Plan, directory: DataDirectory, listener: socket.socket) -> None:
        """`listener` is the games' port: bound here, shared by the gateways, open while they are replaced."""
        self._plan = plan
        self._directory = directory
        self._listener = listener
        self._address: tuple[str, int] = listener.getsockname()[:2]
        self._valkey = EmbeddedValkey(directory.valkey)
        self._postgres = EmbeddedPostgres(directory.postgres)
        self._config = plan.config or directory.path / "simulator.json"
        self._internal: dict[str, str] = {}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._postgres_place = Kept(
            "postgres", self._postgres.start, self._tell, ending=signal.SIGINT, patience_s=_WRITE_S
        )
        self._valkey_place = Kept("valkey", self._valkey.start, self._tell, patience_s=_WRITE_S)
        self._simulator = SimulatorPlace(self._env, self._tell) if plan.config is None else None
        self._gateways = [
            self._role(Role(f"gateway-{n}", muster("gateway"), listener), _DRAIN_S)
            for n in range(1, plan.gateways + 1)
        ]
        self._workers = [
            self._role(Role(f"worker-{n}", muster("worker")), _DRAIN_S) for n in range(1, plan.workers + 1)
        ]
        self._scheduler = self._role(Role("scheduler", muster("scheduler")), _WRITE_S)
        self._celery = [self._job_process("worker"), self._job_process("beat")]
        self._keepers: list[asyncio.Task[None]] = []
        self._rolling: asyncio.Task[None] | None = None
        self._terminal = False

    @property
    def url(self) -> str:
        """Where games reach the platform."""
        return "http://{}:{}".format(*self._address)

    async def run(self) -> None:
        """Start everything, say so on standard output, and end it all in order when told to.

        SIGTERM or SIGINT ends it, a second one by force; SIGHUP replaces the gateways one by one.
        Raises MusterError where the platform does not come up; nothing is left running then.
        """
        loop = asyncio.get_running_loop()
        self._terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup(1)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        stopping = asyncio.ensure_future(self._stopping.wait())
        starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                print(f"ready {self.url}", flush=True)
                await stopping
        finally:
            await _cancelled(starting, stopping)
            await self._end()
            remove_stack(self._directory.path)

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def _hung_up(self) -> None:
        if self._terminal and not _has_terminal():
            self._asked_to_stop()  # its window was closed: this SIGHUP is no request
        elif self._rolling is None or self._rolling.done():
            self._rolling = asyncio.ensure_future(self._roll())

    async def _start(self) -> None:
        await _all_or_none(
            self._begin(self._valkey_place),
            self._start_postgres(),
            *([] if self._simulator is None else [self._start_simulator(self._simulator)]),
        )
        await _all_or_none(*map(self._begin, (*self._gateways, *self._workers, self._scheduler)))
        for place in self._celery:
            await self._begin(place)

    async def _begin(self, place: Kept) -> None:
        await place.begin()
        self._keepers.append(asyncio.ensure_future(place.keep()))

    async def _start_postgres(self) -> None:
        await self._begin(self._postgres_place)
        # Late: it takes a tenth of a second, during which the server can start.
        from shared.store.migrations import migrate

        await migrate(self._postgres.url)

    async def _start_simulator(self, simulator: SimulatorPlace) -> None:
        write_private(self._config, msgspec.json.encode(default_config(simulator.url)))
        await self._begin(simulator.place)

    def _role(self, role: Role, patience_s: float) -> Kept:
        return Kept(role.name, partial(self._launch, role), self._tell, patience_s=patience_s)

    async def _launch(self, role: Role) -> Child:
        launched = await launch(role, self._env())
        self._internal[role.name] = launched.internal
        return launched.child

    def _job_process(self, kind: Literal["worker", "beat"]) -> Kept:
        async def start() -> Child:
            return spawn(f"celery-{kind}", celery(kind), self._env())

        return Kept(f"celery-{kind}", start, self._tell, patience_s=_JOB_S)

    def _env(self) -> dict[str, str]:
        """Read anew for every process: a restart takes over keys that were changed meanwhile."""
        return role_environment(
            os.environ,
            redis_url=self._valkey.url,
            postgres_url=self._postgres.url,
            postgres_direct_url=self._postgres.url,
            broker_url=self._broker_url,
            profile=self._plan.profile,
            config=str(self._config),
            spill_dir=str(self._directory.spill()),
            secret_keys=os.environ.get("MUSTER_SECRET_KEYS") or self._directory.secret_keys(),
        )

    @property
    def _broker_url(self) -> str:
        return f"{self._valkey.url}?db={_BROKER_DATABASE}"

    def _places(self) -> list[Kept]:
        simulator = [] if self._simulator is None else [self._simulator.place]
        return [
            *self._gateways,
            *self._workers,
            *(self._scheduler, *self._celery),
            *simulator,
            *(self._postgres_place, self._valkey_place),
        ]

    def _tell(self) -> None:
        """Bring `stack.json` up to date."""
        running = {place.name: place.child for place in self._places() if place.child is not None}
        stack = Stack(
            pid=os.getpid(),
            url=self.url,
            profile=self._plan.profile,
            redis_url=self._valkey.url,
            broker_url=self._broker_url,
            postgres_url=self._postgres.url,
            config=str(self._config),
            simulator=None if self._simulator is None else self._simulator.url,
            processes={name: Process(child.pid, self._internal.get(name)) for name, child in running.items()},
        )
        write_stack(self._directory.path, stack)

    async def _roll(self) -> None:
        log = structlog.get_logger()
        for place in self._gateways:
            try:
                await place.replace()
            except (MusterError, OSError) as error:
                log.warning("rolling restart given up", process=place.name, reason=str(error))
                return
            log.info("process replaced", process=place.name)

    async def _end(self) -> None:
        await _cancelled(*self._keepers, *([] if self._rolling is None else [self._rolling]))
        self._listener.close()  # with the gateways' own: who comes now is refused, not left waiting
        simulator = [] if self._simulator is None else [self._simulator.place]
        for row in (self._gateways, self._workers, [self._scheduler, *self._celery], simulator):
            await asyncio.gather(*(place.end(self._hurry) for place in row))
        never = asyncio.Event()  # the servers write to disk, however great the hurry
        await asyncio.gather(self._postgres_place.end(never), self._valkey_place.end(never))


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _all_or_none(*steps: Coroutine[None, None, None]) -> None:
    """Run all at once; when one fails, end the others and raise what it raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
