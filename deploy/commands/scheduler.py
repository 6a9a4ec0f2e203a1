"""`muster scheduler`: one role as a process of its own, set up by `MUSTER_*` variables."""

import sys

import click


@click.command("scheduler")
def command() -> None:
    """Write the decision log."""
    from scheduler.__main__ import main

    sys.exit(main())
