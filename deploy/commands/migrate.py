"""`muster migrate`: bring the database's schema to this version."""

import asyncio
import json
import os
from typing import cast

import click

from shared.errors import ConfigError, StoreError
from shared.settings import Settings
from shared.store.migrations import Phase, migrate


@click.command("migrate")
@click.option(
    "--phase",
    type=click.Choice(["pre", "post", "all"]),
    default="all",
    show_default=True,
    help="pre: before new code is rolled out; post: after old code is gone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was applied as JSON.")
def command(phase: str, as_json: bool) -> None:
    """Apply the database's pending migrations. Safe to run again, and by several at once."""
    try:
        settings = Settings.from_env(os.environ)
        applied = asyncio.run(
            migrate(settings.postgres_direct_url or settings.postgres_url, cast("Phase", phase))
        )
    except (ConfigError, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps({"applied": applied}))
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing to apply")
