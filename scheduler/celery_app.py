"""Celery for periodic jobs; no decision ever waits for it. Composition root.

`celery -A scheduler.celery_app worker --pool solo` does the jobs, `… beat` sends them.
"""

import os
import warnings

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging

from scheduler.beat import BEAT_SCHEDULE, QUEUE
from scheduler.broker import broker_address
from shared.logs import configure_logs
from shared.settings import Settings

VISIBILITY_TIMEOUT_S = 600  # an unacknowledged job of a dead worker is given out again; jobs take seconds


def make_app(settings: Settings) -> Celery:
    """The application for these settings."""
    app = Celery("muster", broker=broker_address(settings.broker_url), include=["scheduler.jobs"])
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_default_queue=QUEUE,
        task_acks_late=True,  # with idempotent jobs: one that died half-way is done again
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        # Nobody listens to workers' events or commands, and both would poll the broker.
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": "muster:",
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "socket_keepalive": True,
        },
        beat_schedule=BEAT_SCHEDULE,
        beat_scheduler="scheduler.beat:StatelessScheduler",
        worker_redirect_stdouts=False,
        timezone="UTC",
        enable_utc=True,
    )
    return app


_SETTINGS = Settings.from_env(os.environ)
app = make_app(_SETTINGS)
# As root, which `muster up` may be, Celery warns of messages that run code: only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)


@setup_logging.connect
def _configure_logs(**_signal: object) -> None:
    configure_logs("celery", _SETTINGS.log_level)
