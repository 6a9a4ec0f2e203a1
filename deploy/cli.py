"""The `muster` command. A subcommand is a module of `deploy.commands`, imported when it is used."""

import sys
from importlib import import_module
from typing import Final, cast

import click

from shared.errors import MusterError

# Name → module below deploy.commands, and its line in the help: showing that imports none of them.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("up", "Run the whole platform on this machine."),
    "gateway": ("gateway", "Run one gateway."),
    "worker": ("worker", "Run one worker."),
    "scheduler": ("scheduler", "Run the decision log's writer."),
    "migrate": ("migrate", "Bring the database's schema to this version."),
    "manifest": ("manifest", "Check a game's manifest offline."),
    "demo": ("demo", "Play a real game against the whole platform."),
    "provider-sim": ("provider_sim", "Run the provider simulator."),
}


class _LazyGroup(click.Group):
    """A group that imports a subcommand only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"deploy.commands.{_COMMANDS[cmd_name][0]}")
        return cast("click.Command", module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def muster() -> None:
    """Muster, a decision platform for games; compatible with A2G 0.1."""


def main() -> None:
    """The entry point: what goes wrong on purpose is one line on standard error and exit code 1."""
    try:
        muster(prog_name="muster")
    except MusterError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(1)
