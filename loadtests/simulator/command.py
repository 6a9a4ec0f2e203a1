"""The simulator's command line: `muster provider-sim`, `python -m loadtests.simulator`."""

import asyncio
import signal

import click
import msgspec
import uvloop
from aiohttp import web

from loadtests.simulator.faults import Faults
from loadtests.simulator.server import Simulator

DRAIN_S = 1.0  # a provider that stops may finish what is nearly done


class ErrorRate(click.ParamType[tuple[int, float]]):
    """`529=0.1`: a status and the share of requests that get it."""

    name = "STATUS=SHARE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        """Read one pair; click reports what cannot be read."""
        status, _, share = str(value).partition("=")
        try:
            return int(status), float(share)
        except ValueError:
            self.fail(f"{value!r} is not STATUS=SHARE, such as 529=0.1", param, ctx)


class Outage(click.ParamType[tuple[float, float]]):
    """`30:5`: the seconds after the start at which an outage begins, and how long it lasts."""

    name = "START:SECONDS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Read one pair; click reports what cannot be read."""
        start, _, length = str(value).partition(":")
        try:
            pair = float(start), float(length)
        except ValueError:
            pair = (-1.0, -1.0)
        if not (pair[0] >= 0 and pair[1] >= 0):  # also refuses NaN
            self.fail(f"{value!r} is not START:SECONDS, such as 30:5", param, ctx)
        return pair


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9000, show_default=True, type=click.IntRange(0, 65_535), help="0 takes any.")
@click.option("--key", default="", help="Demand this key as a bearer token.")
@click.option("--latency-ms", default=0.0, help="Time that every answer takes.")
@click.option("--jitter-ms", default=0.0, help="Added to the latency, evenly spread from 0.")
@click.option("--concurrency", default=0, help="Requests at once; more are 529.")
@click.option("--requests-per-s", default=0.0, help="Quota; more are 429.")
@click.option("--tokens-per-s", default=0.0, help="Quota; more are 429.")
@click.option("--error-rate", type=ErrorRate(), multiple=True, help="Share of requests that get a status.")
@click.option("--missing-rate", default=0.0, help="Share of answers that are left out.")
@click.option("--malformed-rate", default=0.0, help="Share of replies that are spoilt.")
@click.option("--drop-rate", default=0.0, help="Share of requests whose connection is cut.")
@click.option("--outage", type=Outage(), help="Cut every connection for a while.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same faults.")
def provider_sim(
    host: str,
    port: int,
    key: str,
    error_rate: tuple[tuple[int, float], ...],
    outage: tuple[float, float] | None,
    seed: int,
    **rates: float,
) -> None:
    """A provider without a model: System One and OpenAI Decisions, deterministic answers, faults to order.

    Prints `ready http://HOST:PORT` when it listens. `POST /control` changes the faults, `GET /stats` counts.
    """
    try:
        faults = msgspec.convert({**rates, "error_rates": dict(error_rate)}, Faults)
    except msgspec.ValidationError as exc:
        raise click.UsageError(str(exc)) from exc
    simulator = Simulator(faults, seed=seed, key=key, outage=outage or (0, 0))
    try:
        uvloop.run(_serve(simulator, host, port))
    except OSError as exc:
        raise click.ClickException(f"cannot listen on {host}:{port}: {exc.strerror}") from exc


async def _serve(simulator: Simulator, host: str, port: int) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    runner = web.AppRunner(simulator.app(), access_log=None, shutdown_timeout=DRAIN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1_024)
        await site.start()
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        click.echo(f"ready http://{shown}:{bound[1]}")
        await stopping.wait()
    finally:
        await runner.cleanup()
