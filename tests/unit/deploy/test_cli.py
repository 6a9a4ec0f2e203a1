"""The `muster` command as far as it needs no server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deploy.cli import main, muster

_SMALL = {"world": "A hive.", "entity_types": {"bee": {"description": "A bee.", "actions": {"fly": "Fly."}}}}


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(muster, arguments, input=stdin)


def test_help_names_every_command_and_imports_none() -> None:
    program = (
        "import sys, deploy.cli\n"
        "try: deploy.cli.muster(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('deploy.commands') or m in"
        " ('asyncio', 'aiohttp', 'asyncpg', 'msgspec', 'structlog', 'celery', 'redis')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *shown, imported = done.stdout.splitlines()
    assert imported == "[]"
    names = {line.split()[0] for line in shown[shown.index("Commands:") + 1 :]}
    expected = {"up", "gateway", "worker", "scheduler", "migrate", "manifest", "demo", "provider-sim"}
    assert names == expected


@pytest.mark.parametrize("name", ["up", "migrate", "manifest", "demo", "provider-sim"])
def test_every_command_has_its_own_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"muster {name}" in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("dwon").exit_code == 2


def test_an_error_of_ours_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["muster", "up", "--profile", "hosted", "--data-dir", str(tmp_path / "data")]
    )
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "muster: --profile hosted: needs identity checks, which this version lacks; use local"
    ]
    assert not (tmp_path / "data").exists()


def test_a_good_manifest_shows_its_hash_and_warnings(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps({**_SMALL, "profiles": {"queen": {"type": "wasp", "text": "Rules."}}}))
    result = run("manifest", "check", str(file))
    assert result.exit_code == 0
    hash_line, warning = result.output.splitlines()
    assert hash_line.startswith("sha256:")
    assert warning.startswith("warning: ")
    assert "profiles.queen.type" in warning
    as_json = json.loads(run("manifest", "check", str(file), "--json").output)
    assert as_json == {"valid": True, "hash": hash_line, "warnings": [warning.removeprefix("warning: ")]}


def test_the_vectors_hashes_come_out() -> None:
    folder = Path(__file__).parents[2] / "vectors" / "a2g"
    cases = json.loads((folder / "manifest_hash.json").read_text())["cases"]
    assert cases
    for case in cases:
        source = case.get("manifest_text") or json.dumps(case["manifest"])
        result = run("manifest", "check", "-", stdin=source)
        assert (result.exit_code, result.output.splitlines()[0]) == (0, case["hash"]), case["name"]


def test_a_faulty_manifest_names_the_path(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps({**_SMALL, "entity_types": {"bee": {"description": 3}}}))
    result = run("manifest", "check", str(file))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "entity_types.bee" in result.stderr
    as_json = json.loads(run("manifest", "check", str(file), "--json").output)
    assert as_json["valid"] is False
    assert as_json["path"].startswith("entity_types.bee")


def test_what_is_no_json_is_said(tmp_path: Path) -> None:
    result = run("manifest", "check", "-", stdin="{")
    assert result.exit_code == 1
    assert result.stderr == "-: the body is not valid JSON\n"
