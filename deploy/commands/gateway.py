"""`muster gateway`: one role as a process of its own, set up by `MUSTER_*` variables."""

import sys

import click


@click.command("gateway")
def command() -> None:
    """Serve the games' port."""
    from gateway.__main__ import main

    sys.exit(main())
