"""Documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from dba_console.cli.app import COMMANDS
from dba_console.cli.config_schema import dotted_key, leaf_settings
from dba_console.cli.manual import manual
from dba_console.core.config import CommandConfig, Config, NodeConfig, PoolerConfig
from dba_console.core.errors import ExitCode
from dba_console.watch.findings.rules_document import toml_text

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text() + (ROOT / "docs" / "findings.md").read_text()
    defaults = msgspec.to_builtins(Config())
    for path, _ in leaf_settings():
        value = defaults
        for name in path:
            value = value[name]
        row = next((line for line in text.splitlines() if line.startswith(f"| `{dotted_key(path)}` |")), None)
        assert row is not None, dotted_key(path)
        if value is not None:
            assert f"| `{toml_text(value)}` |" in row


def test_no_setting_is_documented_that_does_not_exist() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text() + (ROOT / "docs" / "findings.md").read_text()
    examples = {
        "targets.NAME.dsn",
        "targets.NAME.host_panels",
        "targets.NAME.read_only",
        *(f"clusters.NAME.nodes.NODE.{field}" for field in NodeConfig.__struct_fields__),
        *(f"clusters.NAME.poolers.POOLER.{field}" for field in PoolerConfig.__struct_fields__),
        *(f"clusters.NAME.addresses.ADDRESS.{field}" for field in CommandConfig.__struct_fields__),
        "findings.FAMILY.NAME",
    }
    known = {dotted_key(path) for path, _ in leaf_settings()} | examples
    assert set(re.findall(r"^\| `([a-z_]+\.[a-zA-Z_.]+)` \|", text, re.M)) <= known


def test_the_manual_page_is_the_program() -> None:
    page = (ROOT / "docs" / "dba-console.1").read_text()
    assert page == manual()
    for name in COMMANDS:
        assert f'\n.SS "dba\\-console {name}' in page, name


def test_every_exit_code_that_exists_today_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for code in ExitCode:
        assert f"\n| {int(code)} |" in text, code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_only_commands_that_exist(document: Path) -> None:
    for word in re.findall(r"`dba-console ([a-z]+)\b", document.read_text()):
        assert word in COMMANDS, word
