"""The SQL of `sql/queries.sql` by name."""

from importlib.resources import files

_MARK = "-- name: "


def parse_queries(text: str) -> dict[str, str]:
    """Split named blocks; raises ValueError for a name given twice."""
    queries: dict[str, str] = {}
    for block in text.split(f"\n{_MARK}")[1:]:
        name, _, body = block.partition("\n")
        if name in queries:
            raise ValueError(f"two queries are named {name}")
        queries[name] = body.strip()
    return queries


QUERIES = parse_queries(files("shared.store").joinpath("sql", "queries.sql").read_text(encoding="utf-8"))
