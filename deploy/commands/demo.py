"""`muster demo`: a real game played against the whole platform."""

from deploy.demo.command import demo as command

__all__ = ["command"]
