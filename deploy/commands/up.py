"""`muster up`: the whole platform on this machine."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Final, get_args

import click

from deploy.data_dir import DEFAULT_DATA_DIR, DataDirectory
from shared.errors import ConfigError
from shared.settings import SecurityProfile, Settings

_LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 1_024  # connections that wait while a gateway is busy or being replaced


@click.command("up")
@click.option(
    "--config", type=click.Path(path_type=Path), help="Providers, routing, limits; .toml, .yaml or .json."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True, help="0 takes any.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=DEFAULT_DATA_DIR, show_default=True)
@click.option("--profile", type=click.Choice(get_args(SecurityProfile)), help="MUSTER_PROFILE, else local.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--gateways", type=click.IntRange(1, 64), default=1, show_default=True)
def command(
    config: Path | None, port: int, data_dir: Path, profile: str | None, workers: int, gateways: int
) -> None:
    """Run the whole platform here, with an embedded Valkey and Postgres.

    Prints `ready http://127.0.0.1:PORT` when it answers, logs to standard error. SIGTERM or Ctrl-C drains
    and ends it, a second one at once; SIGHUP replaces the gateways one by one.
    """
    settings = Settings.from_env(os.environ)
    chosen = profile or settings.profile
    if chosen == "hosted":
        raise ConfigError("--profile hosted: needs identity checks, which this version lacks; use local")
    directory = DataDirectory.open(data_dir)
    try:
        with _listener(port) as listener:
            _supervise(config, chosen, workers, gateways, directory, listener, settings)
    finally:
        directory.close()


def _supervise(
    config: Path | None,
    profile: str,
    workers: int,
    gateways: int,
    directory: DataDirectory,
    listener: socket.socket,
    settings: Settings,
) -> None:
    from deploy.supervisor import Plan, Supervisor
    from shared.config import load_config
    from shared.logs import configure_logs
    from shared.protocol.secret_keys import SecretKeys

    # What is wrong is told once, here, and not by every role.
    if config is not None:
        config = config.absolute()
        load_config(config)
    if settings.secret_keys:
        SecretKeys.parse(settings.secret_keys)
    configure_logs("up", settings.log_level)
    plan = Plan(config, profile, workers, gateways)

    async def run() -> None:
        await Supervisor(plan, directory, listener).run()

    asyncio.run(run())


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((_LOOPBACK, port), backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"--port {port}: {os.strerror(error.errno or 0)}; choose another, or 0 for any"
        ) from error
