"""One demo from start to end: the platform, the worlds, the view, the summary."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.live import Live

from deploy.demo import picture, view
from deploy.demo.manifest import load_manifest
from deploy.demo.play import Player, make_player, run_world
from deploy.demo.provider import ProviderMeter
from deploy.demo.service import Addresses, ServiceError, read_addresses, start_service, usual_port
from deploy.demo.summary import Summary, summarise
from deploy.demo.tally import Tally
from deploy.demo.worlds import CrafterWorld

VIEW_S = 0.25
PLAIN_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `url` None: start a platform in `data_dir`. `outage` is (start, length) in s."""

    seconds: float
    worlds: int
    seed: int
    data_dir: Path
    picture: Path
    url: str | None = None
    outage: tuple[float, float] | None = None
    plain: bool = False


class _OverError(Exception):
    """Time is up: takes the task group down. Never leaves this module."""


@dataclass(slots=True)
class _Running:
    """What the parts of a running demo share."""

    options: Options
    url: str
    addresses: Addresses
    meter: ProviderMeter
    stop: asyncio.Event
    began_s: float
    tally: Tally = field(default_factory=Tally)
    players: list[Player] = field(default_factory=list)
    outage_until_s: float = 0.0

    @property
    def now_s(self) -> float:
        """Seconds since play began."""
        return time.monotonic() - self.began_s

    def moment(self) -> view.Moment:
        return view.Moment(
            now_s=self.now_s,
            length_s=self.options.seconds,
            url=self.url,
            simulated=self.addresses.simulator_url is not None,
            outage=self.now_s < self.outage_until_s,
            tally=self.tally,
            players=self.players,
            spend=self.meter.spend,
            rates=self.meter.rates,
        )


async def run(options: Options, console: Console) -> Summary:
    """Play until the time is up or a signal says stop. Raises ServiceError when there is no platform."""
    stop = asyncio.Event()
    _listen(stop)
    async with _platform(options, stop, console) as (url, addresses), aiohttp.ClientSession() as http:
        console.print(f"making islands, {options.worlds} …", highlight=False)
        worlds = await asyncio.to_thread(_make_worlds, options.worlds, options.seed)
        meter = ProviderMeter(http, addresses.simulator_url, addresses.metrics_urls)
        running = _Running(options, url, addresses, meter, stop, time.monotonic())
        await _play(running, worlds, http, console)
        return _sum_up(running)


def _listen(stop: asyncio.Event) -> None:
    """The first SIGINT or SIGTERM sets `stop`, a second one does what it does to any program."""
    loop = asyncio.get_running_loop()

    def hear() -> None:
        stop.set()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, hear)


@asynccontextmanager
async def _platform(
    options: Options, stop: asyncio.Event, console: Console
) -> AsyncIterator[tuple[str, Addresses]]:
    """The platform's address, and the inner addresses as far as they are known."""
    if options.url is not None:
        yield options.url, read_addresses(options.data_dir, options.url)
        return
    console.print("starting the platform …", highlight=False)
    starting = asyncio.create_task(start_service(options.data_dir, usual_port(), os.environ))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        raise ServiceError("stopped before the platform was ready")
    service = starting.result()
    try:
        yield service.url, read_addresses(options.data_dir, service.url)
    finally:
        console.print("stopping the platform …", highlight=False)
        await service.stop()


async def _play(
    running: _Running, worlds: Sequence[CrafterWorld], http: aiohttp.ClientSession, console: Console
) -> None:
    manifest = load_manifest()
    try:
        async with asyncio.TaskGroup() as group:
            for world in worlds:
                player = make_player(
                    world, http=http, url=running.url, manifest=manifest, tally=running.tally, group=group,
                    began_s=running.began_s,
                )  # fmt: skip
                running.players.append(player)
                player.client.start()
            loops = [group.create_task(run_world(player, running.stop, group)) for player in running.players]
            group.create_task(running.meter.run())
            group.create_task(_show(running, console))
            if running.options.outage is not None:
                group.create_task(_outage(running, *running.options.outage))
            group.create_task(_stop_later(running.stop, running.options.seconds))
            await _over(loops)
    except* _OverError:
        pass


async def _over(loops: Sequence[asyncio.Task[None]]) -> None:
    # The loops end by themselves, between two frames, so that the picture shows a whole world.
    await asyncio.wait(loops)
    raise _OverError


async def _stop_later(stop: asyncio.Event, seconds: float) -> None:
    await asyncio.sleep(seconds)
    stop.set()


async def _outage(running: _Running, start_s: float, seconds: float) -> None:
    await asyncio.sleep(start_s)
    if await running.meter.begin_outage(seconds):
        running.outage_until_s = running.now_s + seconds
    else:
        running.tally.fault("outage", "the provider simulator cannot be reached")


async def _show(running: _Running, console: Console) -> None:
    if running.options.plain or not console.is_terminal:
        while True:
            await asyncio.sleep(PLAIN_S)
            console.print(view.plain_line(running.moment()), soft_wrap=True, highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(view.render(running.moment(), console.height - 1), refresh=True)
            await asyncio.sleep(VIEW_S)


def _sum_up(running: _Running) -> Summary:
    return summarise(
        seconds=running.now_s,
        players=running.players,
        tally=running.tally,
        spend=running.meter.spend,
        simulated=running.addresses.simulator_url is not None,
        picture=_draw(running),
    )


def _draw(running: _Running) -> str | None:
    """The world with the most to see."""
    player = max(running.players, key=lambda player: len(picture.visible(player)))
    try:
        picture.draw(player, running.options.picture)
    except OSError as error:
        running.tally.fault("picture", str(error))
        return None
    return str(running.options.picture)


def _make_worlds(count: int, seed: int) -> list[CrafterWorld]:
    worlds = [CrafterWorld(f"w{number + 1}", seed + number) for number in range(count)]
    for world in worlds:
        world.generate()
    return worlds
