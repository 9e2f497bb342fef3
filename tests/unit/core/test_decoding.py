"""Typed records from bytes, while several threads meet the same types for the first time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys, threading
import msgspec
from dba_console.core import decoding

sys.setswitchinterval(1e-6)
FIELDS = "".join(f"    x{number}: int | None = None\\n" for number in range(1, 15))
SOURCE = "from msgspec import Struct\\nclass A(Struct, frozen=True):\\n    x0: int | None = None\\n" + FIELDS + "".join(
    f"class {name}(Struct, frozen=True):\\n    x0: list[{inner}] | None = None\\n" + FIELDS
    for inner, name in zip("ABCDEF", "BCDEFG")
)
DATA = msgspec.msgpack.encode({"x0": [{"x1": 5}], "x1": 3})

def decode(kinds, names, together):
    together.wait()
    for name in names:
        make = decoding.packed_decoder(kinds[name])
        make.decode(DATA)
        decoding.convert({"x0": [], "x1": 1}, kinds[name])
        decoding.from_json(b'{"x0": []}', kinds[name])

for _ in range(60):
    kinds, together = {}, threading.Barrier(2)
    exec(SOURCE, kinds)
    threads = [threading.Thread(target=decode, args=(kinds, names, together)) for names in ("GF", "CBEDF")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_use_a_type_at_the_same_time_both_decode_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_other_module_registers_types_with_msgspec() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "dba_console").rglob("*.py"))
        if path.name != "decoding.py" and "msgspec." in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and learns_a_type(node)
    ]
    assert found == []


def learns_a_type(call: ast.Call) -> bool:
    """Whether it makes a decoder of a type, decodes as a type, or converts."""
    called = ast.unparse(call.func)
    if called in ("msgspec.json.decode", "msgspec.msgpack.decode"):
        return any(keyword.arg == "type" for keyword in call.keywords)
    if called in ("msgspec.json.Decoder", "msgspec.msgpack.Decoder"):
        return bool(call.args or call.keywords)
    return called == "msgspec.convert"
