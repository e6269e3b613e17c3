"""The house rules that no linter knows: sizes, names, no open tasks, no dead files, no hidden clocks."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("schema", "producer", "dispatcher", "loadtest", "deploy")
#: Rooms whose code must run the same under virtual time and a seed.
CORE = ("schema", "producer", "dispatcher")

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
#: Words that say nothing about what is inside.
BUCKETS = {"common", "helper", "helpers", "misc", "model", "models", "util", "utils"}
#: Text that belongs to one machine or is not finished. Written so that this file does not match itself.
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
OF_ONE_MACHINE = re.compile(r"(?<![\w.$}])(?:/(?:home|root|Users)/\w|[A-Z]:\\Users\\)")

#: Modules and calls that ask the world what time it is, or for luck; each has one home, from where it is handed in.
HOMES = {"schema/clock.py", "schema/fresh_ids.py"}
CLOCK_MODULES = {"random", "secrets", "time"}
CLOCK_CALLS = {"datetime.now", "datetime.today", "datetime.utcnow", "date.today", "os.urandom"}


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def written_files() -> Iterator[Path]:
    """Everything people wrote: code, settings and prose."""
    yield from python_files("tocsin", "tests", "docs", "examples", *ROOMS)
    for folder in (".", ".ci", "tests", "docs", *ROOMS):
        files = sorted(path for path in (ROOT / folder).iterdir() if path.is_file())
        yield from (path for path in files if path.suffix in {"", ".md", ".toml", ".yaml", ".xml", ".properties"})


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text_of(path))))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lengths = {
        shown(path): len(text_of(path).splitlines()) for path in python_files("tocsin", "tests", "examples", *ROOMS)
    }
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_seventy_lines() -> None:
    long = {}
    for path in python_files("tocsin", "tests", *ROOMS):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{shown(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_no_module_is_named_for_a_bucket() -> None:
    named = [shown(path) for path in python_files("tocsin", "tests", *ROOMS) if BUCKETS & set(path.stem.split("_"))]
    assert named == []


def test_rooms_are_flat() -> None:
    nested = [shown(path) for path in python_files(*ROOMS) if path.parent.parent != ROOT]
    assert nested == []


def test_nothing_is_left_to_do_in_the_code() -> None:
    found = [
        f"{shown(path)}:{number}"
        for path in written_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = [
        f"{shown(path)}:{number}"
        for path in written_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def test_the_core_asks_no_clock_and_no_luck_of_its_own() -> None:
    found = []
    for path in python_files(*CORE):
        if shown(path) in HOMES:
            continue
        for node in nodes_of(path):
            modules = set(imported_roots(node))
            if modules & CLOCK_MODULES or dotted(node) in CLOCK_CALLS:
                found.append(f"{shown(path)}:{getattr(node, 'lineno', 0)}")
    assert found == []


def test_every_module_is_reached_from_a_command_a_public_name_or_a_test() -> None:
    modules = {module_name(path): path for path in python_files("tocsin", *ROOMS)}
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    reached = {"tocsin", *(target.partition(":")[0] for target in scripts.values())}
    for path in python_files("tests"):
        reached |= mentioned(path, modules)
    open_ends = list(reached & modules.keys())
    while open_ends:
        new = mentioned(modules[open_ends.pop()], modules) - reached
        reached |= new
        open_ends += new
    assert sorted(modules.keys() - reached) == []


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "tocsin" else ("tocsin", *parts))
    return name.removesuffix(".__init__")


def mentioned(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules a file imports, and those it starts as programs of their own by name; with their packages."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    packages = {name.rpartition(".")[0] for name in names}
    return (names | packages) & modules.keys()


def imported_roots(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.partition(".")[0]


def dotted(node: ast.AST) -> str:
    """`name.attribute` of an attribute of a plain name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""
