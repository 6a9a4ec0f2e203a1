"""`python -m loadtests.simulator`."""

from loadtests.simulator.command import provider_sim

provider_sim()
