"""For shared copies: copy the runs of a session and their output with names replaced. Journals get new hash chains."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dba_console.core.atomic_files import open_regular, read_small, write_atomically
from dba_console.core.errors import SessionError
from dba_console.keeper.output_log import parse_segment_name, segment_name
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_paths import DOCUMENT, JOURNAL, PLAN, STEPS, SUMMARY, run_directories
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.recording.run_records import BEGAN, chain
from dba_console.reports.share_records import RecordRewriter

OUT = "out"
_FILE_LIMIT = 256 << 20
"""Bytes of a file of output that are copied at most."""

RecordHashes = dict[tuple[str, int], str]
"""Original run and number of a record -> hash of its copy."""


class RunCopier:
    """Copies what is beside the recording; without a target it only learns names."""

    def __init__(self, records: RecordRewriter, target: Path | None) -> None:
        self._records = records
        self._text = records.text.rewrite
        self._target = target
        self.hashes: RecordHashes = {}
        self.left_out: list[str] = []

    def copy(self, session: Path) -> None:
        """Copy every run and every file of `out/`. Raises OSError."""
        for directory in run_directories(session):
            try:
                run = read_run(directory)
            except SessionError as error:
                self.left_out.append(self._text("text", f"run {directory.name}: {error.message}"))
                continue
            self._copy_run(run)
        self._copy_outputs(session / OUT, OUT)

    def _copy_run(self, run: StoredRun) -> None:
        name = self._text("text", run.directory.name)
        place = f"runs/{name}"
        document = self._document(run.text)
        plan = self._plan(run.directory / PLAN, document)
        head = ChainHead.of(name)
        lines: list[bytes] = []
        for seq, record in enumerate(run.records, 1):
            line = chain(self._record(record, name, document, plan), head)
            head = line.head
            lines.append(line.raw + b"\n")
            self.hashes[run.directory.name, seq] = line.hash
        if run.damage is not None:
            self.left_out.append(self._text("text", f"run {run.directory.name}: {run.damage}"))
        self._write(f"{place}/{DOCUMENT}", document)
        self._write(f"{place}/{PLAN}", plan)
        self._write(f"{place}/{JOURNAL}", b"".join(lines))
        summary = self._json(run.directory / SUMMARY)
        if summary is not None:
            self._write(f"{place}/{SUMMARY}", summary)
        for step in sorted(_directories(run.directory / STEPS)):
            self._copy_outputs(step, f"{place}/{STEPS}/{self._text('text', step.name)}")

    def _document(self, text: str) -> bytes:
        return "\n".join(self._text("text", line) for line in text.split("\n")).encode()

    def _plan(self, path: Path, document: bytes) -> bytes:
        try:
            with open_regular(path) as file:
                plan = json.load(file)
        except (OSError, ValueError, RecursionError):
            return b"{}"
        plan = self._code(plan)
        if isinstance(plan, dict):
            plan["sha256"] = hashlib.sha256(document).hexdigest()
        return msgspec.json.format(msgspec.json.encode(plan))

    def _code(self, value: Any) -> Any:
        """Return a plan with its strings rewritten; its members are words of the format."""
        if isinstance(value, str):
            return "\n".join(self._text("text", line) for line in value.split("\n"))
        if isinstance(value, list):
            return [self._code(one) for one in value]
        return {name: self._code(one) for name, one in value.items()} if isinstance(value, dict) else value

    def _record(self, record: JournalRecord, run: str, document: bytes, plan: bytes) -> JournalRecord:
        made = self._records.record(record)
        if record.kind == BEGAN:
            made.fields.update(
                run=run,
                runbook_sha256=hashlib.sha256(document).hexdigest(),
                plan_sha256=hashlib.sha256(plan).hexdigest(),
                target=self._text("target", str(record.fields.get("target", ""))),
            )
        return made

    def _json(self, path: Path) -> bytes | None:
        try:
            value = json.loads(read_small(path, _FILE_LIMIT))
        except (OSError, ValueError, RecursionError):
            return None
        return json.dumps(self._records.generic(value), ensure_ascii=False, indent=1).encode()

    def _copy_outputs(self, directory: Path, place: str) -> None:
        """Copy the files of a keeper, or those of `dba-console stamp`."""
        end, original_end = 0, 0
        for name in sorted(_files(directory), key=_by_offset):
            path = directory / name
            segment = _segment(name)
            if not name.endswith((".log", ".tail")):
                data = self._json(path)
                if data is not None:
                    self._write(f"{place}/{self._text('text', name)}", data)
                continue
            original = read_small(path, _FILE_LIMIT)
            data = b"".join(self._stamped_line(line) for line in original.splitlines(keepends=True))
            target = self._text("text", name)
            if segment is None:
                end = original_end = 0
            else:
                # A segment is named by its offset in the stream, which has another length now.
                log, offset, line = segment
                end += max(0, offset - original_end)
                original_end = offset
                target = segment_name(self._text("text", log), end, line)
            end, original_end = end + len(data), original_end + len(original)
            self._write(f"{place}/{target}", data)

    def _stamped_line(self, line: bytes) -> bytes:
        """`<microseconds> <stream> text`."""
        text = line.decode("utf-8", "replace")
        body = text.rstrip("\r\n")
        stamp, blank, rest = body.partition(" ")
        if not (blank and stamp.isdecimal()):
            return (self._text("text", body) + text[len(body) :]).encode()
        stream, blank, rest = rest.partition(" ")
        return f"{stamp} {stream}{blank}{self._text('text', rest)}{text[len(body) :]}".encode()

    def _write(self, name: str, data: bytes) -> None:
        if self._target is None:
            return
        path = self._target / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(str(path.parent), path.name, data)


def _segment(name: str) -> tuple[str, int, int] | None:
    """Return log, offset and first line of a segment."""
    log = name.rpartition("-")[0].rpartition("-")[0]
    parsed = parse_segment_name(log, name) if log else None
    return None if parsed is None else (log, *parsed)


def _by_offset(name: str) -> tuple[str, int]:
    segment = _segment(name)
    return (name.removesuffix(".log"), 0) if segment is None else (segment[0], segment[1])


def _files(directory: Path) -> Iterator[str]:
    yield from (entry.name for entry in _entries(directory) if entry.is_file(follow_symlinks=False))


def _directories(directory: Path) -> Iterator[Path]:
    yield from (Path(entry.path) for entry in _entries(directory) if entry.is_dir(follow_symlinks=False))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
