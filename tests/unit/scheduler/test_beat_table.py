"""Every job of the beat table is a task that Celery knows; nothing is pickled, nothing waits for a result."""

from datetime import timedelta

import pytest

import scheduler.jobs  # noqa: F401
from scheduler.beat import BEAT_SCHEDULE, JOBS
from scheduler.celery_app import make_app
from shared.settings import Settings

APP = make_app(Settings(broker_url="unix:///tmp/v.sock"))


@pytest.mark.parametrize("name", JOBS)
def test_a_job_names_a_task(name: str) -> None:
    from scheduler.celery_app import app

    assert BEAT_SCHEDULE[name]["task"] in app.tasks


@pytest.mark.parametrize("name", JOBS)
def test_a_job_expires_before_its_next_turn_and_goes_to_our_queue(name: str) -> None:
    assert BEAT_SCHEDULE[name]["options"] == {"queue": "muster", "expires": JOBS[name].total_seconds()}
    assert JOBS[name] <= timedelta(days=1)


def test_only_json_is_accepted() -> None:
    assert APP.conf.accept_content == ["json"]
    assert APP.conf.task_serializer == "json"
    assert APP.conf.result_backend is None
