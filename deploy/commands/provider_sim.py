"""`muster provider-sim`: the provider simulator."""

from loadtests.simulator.command import provider_sim as command

__all__ = ["command"]
