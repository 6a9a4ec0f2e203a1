"""The address of Celery's broker in the form that kombu reads. Pure."""

from urllib.parse import parse_qs, urlsplit


def broker_address(url: str) -> str:
    """Translate `unix://[user:password@]/path?db=N` to kombu's `redis+socket://`; others stay."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{account}{parts.path}?virtual_host={database}"
