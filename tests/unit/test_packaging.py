"""Rooms, pyproject, the type checkers' links and the built wheel name the same packages and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest

from tocsin.deploy.main import _EXTRA

ROOT = Path(__file__).parents[2]
LINKS = ROOT / ".typecheck" / "tocsin"


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def packages(pyproject: dict[str, Any]) -> dict[str, Path]:
    """Each package and the folder that holds it."""
    folders = pyproject["tool"]["setuptools"]["package-dir"]
    assert set(folders) == set(pyproject["tool"]["setuptools"]["packages"])
    return {package: ROOT / folder for package, folder in folders.items()}


@pytest.fixture(scope="module")
def wheel(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy, so that nothing left by an earlier build gets into it."""
    source = tmp_path_factory.mktemp("source")
    for folder in packages.values():
        shutil.copytree(folder, source / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(source / "dist"), "."]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


def test_every_room_with_an_init_is_a_package(packages: dict[str, Path]) -> None:
    rooms = {path.parent for path in ROOT.glob("*/__init__.py")}
    assert rooms == set(packages.values())


def test_type_checkers_follow_one_link_to_each_room(packages: dict[str, Path]) -> None:
    rooms = {package.removeprefix("tocsin."): folder for package, folder in packages.items() if package != "tocsin"}
    links = {link.name: link.resolve() for link in LINKS.iterdir() if link.is_dir() and link.name != "__pycache__"}
    assert links == rooms
    assert (LINKS / "__init__.py").resolve() == ROOT / "tocsin" / "__init__.py"


def test_links_do_not_depend_on_where_the_clone_lies() -> None:
    links = [link for link in LINKS.iterdir() if link.is_symlink()]
    assert links
    assert [link.name for link in links if link.readlink().is_absolute()] == []


def test_the_wheel_holds_every_file_of_every_room_and_no_other(
    packages: dict[str, Path], wheel: zipfile.ZipFile
) -> None:
    written = {
        f"{package.replace('.', '/')}/{path.name}"
        for package, folder in packages.items()
        for path in folder.iterdir()
        if path.is_file()
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == written
    assert "tocsin/py.typed" in shipped


def test_the_base_install_asks_for_what_a_client_needs_and_nothing_more(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    required = HeaderParser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []
    base = {requirement.split(maxsplit=1)[0] for requirement in required if "extra ==" not in requirement}
    assert {name.rstrip("<>=.,0123456789") for name in base} == {"cassandra-driver", "croniter", "msgspec", "tzdata"}


def test_a_consumer_needs_no_extra() -> None:
    program = "import sys; from tocsin import CassandraInbox, MemoryInbox, Received, SqliteInbox; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tocsin.dispatcher.inbox_cassandra" in loaded
    assert {name.partition(".")[0] for name in loaded} & _EXTRA == set()


def test_the_command_is_installed(pyproject: dict[str, Any], wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    module, _, function = pyproject["project"]["scripts"]["tocsin"].partition(":")
    assert f"tocsin = {module}:{function}" in wheel.read(name).decode()
    assert f"{module.replace('.', '/')}.py" in wheel.namelist()


def test_every_command_but_the_load_test_works_without_what_the_load_test_needs() -> None:
    program = "import sys; sys.modules.update(psutil=None, plotly=None); from tocsin.deploy import application"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
