"""Fixtures of the acceptance tests."""

from tests.stack import muster_up

__all__ = ["muster_up"]
