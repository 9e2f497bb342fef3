"""Documents say what the code says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.cli.command_table import COMMANDS
from dba_console.cli.config_declaration import settings_table
from dba_console.cli.manual import manual
from dba_console.core.config import Config
from dba_console.core.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_table_of_settings_matches_the_declarations() -> None:
    wrong = "put what `python -m dba_console.cli.config_declaration` prints into docs/configuration.md"
    assert f"\n\n{settings_table()}\n\n" in (ROOT / "docs" / "configuration.md").read_text(), wrong


def test_every_setting_is_documented() -> None:
    assert [row for row in settings_table().splitlines() if row.endswith("|  |")] == []


def test_the_schema_of_the_configuration_can_be_printed() -> None:
    command = [sys.executable, "-m", "dba_console.cli.config_declaration", "--schema"]
    schema = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert set(schema["properties"]) == set(Config.__struct_fields__)
    node = schema["properties"]["clusters"]["additionalProperties"]["properties"]["nodes"]["additionalProperties"]
    assert node["required"] == ["dsn"] and node["additionalProperties"] is False


def test_the_manual_page_matches_the_program() -> None:
    page = (ROOT / "docs" / "dba-console.1").read_text()
    assert page == manual()
    for name in COMMANDS:
        assert f'\n.SS "dba\\-console {name}' in page, name


def test_every_existing_exit_code_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for code in ExitCode:
        assert f"\n| {int(code)} |" in text, code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_have_existing_targets(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_only_commands_that_exist(document: Path) -> None:
    for word in re.findall(r"`dba-console ([a-z]+)\b", document.read_text()):
        assert word in COMMANDS, word
