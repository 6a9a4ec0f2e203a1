"""The table of periodic jobs, and the clock that sends them."""

from datetime import UTC, datetime, timedelta
from typing import Final

from celery.beat import Scheduler

QUEUE: Final = "muster"

# Job, how often. Each also runs once when beat starts, so a missed turn is made up for.
JOBS: Final = {
    "create_partitions": timedelta(hours=1),
    "drop_expired_partitions": timedelta(hours=1),
}

BEAT_SCHEDULE: Final = {
    name: {
        "task": f"scheduler.jobs.{name}",
        "schedule": every,
        # A turn that nobody took before the next one is worth nothing.
        "options": {"queue": QUEUE, "expires": every.total_seconds()},
    }
    for name, every in JOBS.items()
}


class StatelessScheduler(Scheduler):
    """Keeps no file (Celery's own is pickled): jobs are idempotent, so each simply starts as due."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            entry.last_run_at = datetime(2000, 1, 1, tzinfo=UTC)
