"""A stack to measure: `muster up` in front of a provider simulator of its own, with CPU time by process."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from loadtests.load import cpu_seconds

MUSTER = str(Path(sysconfig.get_path("scripts")) / "muster")
PROVIDER = "simulator"


@dataclass(frozen=True, slots=True)
class RigOptions:
    """What a measurement varies."""

    redis_client: str = "thin"
    latency_ms: int = 0
    concurrency: int = 4
    linger_ms: int = 5
    max_questions: int = 64
    simulator: tuple[str, ...] = ()  # further options of the simulator


@dataclass(frozen=True, slots=True)
class Rig:
    """A running stack."""

    host: str
    port: int
    processes: dict[str, int]  # name → process id; `up` is the supervisor
    internals: dict[str, str]  # name → base address of health and metrics
    simulator: str  # base address
    ready_s: float  # from start to the ready line

    def cpu_s(self, *names: str) -> float:
        """CPU seconds used so far by the processes whose names begin with one of `names`."""
        return sum(cpu_seconds(pid) for name, pid in self.processes.items() if name.startswith(names))

    def simulator_stats(self) -> dict[str, Any]:
        """What the simulator has counted."""
        return dict(json.loads(_get(self.simulator + "/stats")))

    def metric(self, role: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one metric of one process, by labels."""
        text = _get(self.internals[role] + "/metrics").decode()
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }


@contextmanager
def rig(options: RigOptions | None = None) -> Iterator[Rig]:
    """Start a stack with one gateway and one worker; everything is ended and removed afterwards."""
    chosen = options or RigOptions()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, _simulator(chosen) as simulator:
        config = Path(folder) / "bench.json"
        config.write_text(json.dumps(_config(simulator, chosen)), encoding="utf-8")
        data = Path(folder) / "data"
        started_s = time.monotonic()
        argv = [MUSTER, "up", "--port", "0", "--data-dir", str(data), "--config", str(config)]
        env = {**os.environ, "MUSTER_REDIS_CLIENT": chosen.redis_client, "MUSTER_LOG_LEVEL": "warning"}
        with _child(argv, env) as (url, pid):
            ready_s = time.monotonic() - started_s
            told = json.loads((data / "stack.json").read_text(encoding="utf-8"))["processes"]
            host, _, port = url.removeprefix("http://").rpartition(":")
            yield Rig(
                host=host,
                port=int(port),
                processes={name: one["pid"] for name, one in told.items()} | {"up": pid},
                internals={name: one["internal"] for name, one in told.items() if one.get("internal")},
                simulator=simulator,
                ready_s=ready_s,
            )


@contextmanager
def _simulator(options: RigOptions) -> Iterator[str]:
    argv = [sys.executable, "-m", "loadtests.simulator", "--port", "0"]
    argv += ["--latency-ms", str(options.latency_ms), *options.simulator]
    with _child(argv, dict(os.environ)) as (url, _):
        yield url


@contextmanager
def _child(argv: list[str], env: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Run a command that prints `ready URL`; yields the URL and its process id, ends it with SIGTERM."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("no pipe")
            line = process.stdout.readline().strip()
            if not line.startswith("ready "):
                raise RuntimeError(f"{argv[0]} did not start")
            yield line.removeprefix("ready "), process.pid
        finally:
            process.terminate()
            process.wait(60)


def _config(simulator: str, options: RigOptions) -> dict[str, Any]:
    provider = {
        "kind": "systemone",
        "base_url": simulator,
        "model": "simulator-1",
        "isolates_questions": True,
        "max_questions": options.max_questions,
        "price_per_mtok_usd": 0.042,
    }
    return {
        "providers": {PROVIDER: provider},
        "routing": {"default": [PROVIDER]},
        "linger_ms": options.linger_ms,
        "concurrency": options.concurrency,
    }


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 -- loopback addresses of our own
        return bytes(reply.read())
