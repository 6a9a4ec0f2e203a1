"""`muster worker`: one role as a process of its own, set up by `MUSTER_*` variables."""

import sys

import click


@click.command("worker")
def command() -> None:
    """Claim questions and ask providers."""
    from workers.__main__ import main

    sys.exit(main())
