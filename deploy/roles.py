"""How a role's process is started and how it is known to be ready."""

import asyncio
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deploy.embedded.children import Child
from shared.errors import ConfigError, MusterError

_READY_S: Final = 60.0
_LOOK_S: Final = 0.02
_LOOPBACK: Final = "127.0.0.1"
_MADE_HERE: Final = ("MUSTER_BIND", "MUSTER_LISTEN_FD", "MUSTER_INTERNAL_BIND")


class RoleStartError(MusterError):
    """A role's process ended, or was not ready in time."""


@dataclass(frozen=True, slots=True)
class Role:
    """What to run, and under which name it is told apart from its like."""

    name: str
    argv: tuple[str, ...]
    listener: socket.socket | None = None  # the games' port, shared by all gateways


@dataclass(frozen=True, slots=True)
class Launched:
    """A role that is ready, and the address of its health and metrics."""

    child: Child
    internal: str


def muster(*arguments: str) -> tuple[str, ...]:
    """The command line of a subcommand, in this very environment: it shows as `… muster gateway …`."""
    return sys.executable, _script("muster"), *arguments


def celery(kind: Literal["worker", "beat"]) -> tuple[str, ...]:
    """The command line of Celery's worker or beat."""
    options = {
        # One job at a time, in the worker's own process; nobody listens to what workers tell each other.
        "worker": ("--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        "beat": ("--pidfile=",),
    }
    return sys.executable, _script("celery"), "-A", "scheduler.celery_app", "-q", kind, *options[kind]


def _script(name: str) -> str:
    script = Path(sysconfig.get_path("scripts")) / name
    if not script.exists():
        raise ConfigError(f"{script} is missing; install the project into this environment")
    return str(script)


def role_environment(own: Mapping[str, str], **settings: str) -> dict[str, str]:
    """The caller's environment, which holds the providers' keys, with the `MUSTER_*` settings laid over it.

    Without libpq's variables: they would lead a role to another database than the stack's.
    """
    kept = {k: v for k, v in own.items() if not k.startswith("PG") and k not in _MADE_HERE}
    return kept | {f"MUSTER_{name.upper()}": value for name, value in settings.items()}


async def launch(role: Role, env: Mapping[str, str]) -> Launched:
    """Start a role and wait until its `/readyz` says so. Raises RoleStartError.

    Its inside listener is made here and handed on: the port is known, and no other process can take it.
    """
    with socket.create_server((_LOOPBACK, 0)) as internal:
        address = internal.getsockname()[:2]
        extra = {"MUSTER_INTERNAL_BIND": f"fd:{internal.fileno()}"}
        descriptors = [internal.fileno()]
        if role.listener is not None:
            extra["MUSTER_LISTEN_FD"] = str(role.listener.fileno())
            descriptors.append(role.listener.fileno())
        child = spawn(role.name, role.argv, {**env, **extra}, descriptors)
    with child.ended_on_failure():
        await until_answering(child, address, "/readyz")
        if role.listener is not None:
            await until_answering(child, role.listener.getsockname()[:2], "/health")
    return Launched(child, f"http://{address[0]}:{address[1]}")


def spawn(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    descriptors: Sequence[int] = (),
    stdout: int | None = None,
) -> Child:
    """Start a process whose outputs are our standard error: our standard output holds the ready line only."""
    return Child.spawn(name, argv, env=env, output=sys.stderr.fileno(), stdout=stdout, pass_fds=descriptors)


async def until_answering(child: Child, address: tuple[str, int], path: str) -> None:
    """Wait until `path` is answered 200. Raises RoleStartError when `child` ends first, or after a minute."""
    try:
        async with asyncio.timeout(_READY_S):
            while await http_status(address, path) != 200:
                if (code := child.returncode) is not None:
                    raise RoleStartError(f"{child.name} ended with code {code} before it was ready")
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise RoleStartError(f"{child.name} was not ready within {_READY_S:.0f} s") from None


async def http_status(address: tuple[str, int], path: str) -> int | None:
    """The status that a GET is answered with; None where nothing sensible answers."""
    host, port = address
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return None
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).split()
    except OSError:
        return None
    finally:
        writer.close()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
