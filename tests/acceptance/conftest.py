"""Fixtures of the acceptance tests."""

from tests.fault_platform import fault_up, platform
from tests.stack import muster_up

__all__ = ["fault_up", "muster_up", "platform"]
