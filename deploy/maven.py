"""Cassandra's and Kafka's jars: fetched once by Maven, kept in the user's cache, verified before every use.

`stack-jars.toml` names every file with its SHA-256, so what runs is what was tried here, whoever served it. A file that
is missing or damaged is fetched again. Maven works on a repository of its own inside the cache, deleted afterwards: the
user's is neither filled nor trusted; mirrors and proxies in the user's settings.xml hold.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tocsin.deploy.file_lock import locked
from tocsin.deploy.stack_config import template
from tocsin.deploy.stack_errors import StackUnavailable

Library = Literal["cassandra", "kafka"]
#: Told what is being done, how much of it is done, and of how much.
Report = Callable[[str, int, int], None]

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def cache_folder() -> Path:
    """Return this user's folder for what can be made again (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tocsin"


def checksums(library: Library) -> dict[str, str]:
    """Return the library's files and the SHA-256 each must have."""
    files: dict[str, str] = tomllib.loads(template("stack-jars.toml"))[library]
    return files


def jar_folder(library: Library) -> Path:
    """Return where the library's jars are; another set of checksums has another folder."""
    digest = hashlib.sha256(repr(sorted(checksums(library).items())).encode()).hexdigest()
    return cache_folder() / "jars" / f"{library}-{digest[:12]}"


def fetch_jars(report: Report) -> None:
    """Make all jars present and verified.

    Raises:
        StackUnavailable: Maven is missing or cannot fetch them, or what it fetched is not what was expected.
    """
    for library in ("cassandra", "kafka"):
        folder = jar_folder(library)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / "lock"):
            for name in damaged_jars(library):
                (folder / name).unlink(missing_ok=True)
            if damaged_jars(library):
                _run_maven(library, report)
            if wrong := damaged_jars(library):
                raise StackUnavailable(
                    f"{wrong[0]} is not the file that was expected (SHA-256). "
                    f"Look for a proxy that changes downloads, delete {folder} and run the command again."
                )


def damaged_jars(library: Library) -> list[str]:
    """Return the files that are missing or do not have their checksum."""
    folder = jar_folder(library)
    return [name for name, wanted in checksums(library).items() if _sha256(folder / name) != wanted]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _run_maven(library: Library, report: Report) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StackUnavailable(
            "Maven is missing. Install it (Debian: maven, macOS: brew install maven), or Docker. "
            "It fetches Cassandra and Kafka once."
        )
    folder = jar_folder(library)
    repository = folder.with_name(f"{folder.name}.maven")
    pom = repository / "pom.xml"
    repository.mkdir(exist_ok=True)
    pom.write_text(template("stack-pom.xml"))
    command = [maven, "--batch-mode", "--strict-checksums", f"--file={pom}", f"--activate-profiles={library}"]
    command += [f"-Dmaven.repo.local={repository}", f"-DoutputDirectory={folder}", "-DincludeScope=runtime", COPY_GOAL]
    try:
        _watch_maven(command, library, report)
    finally:
        shutil.rmtree(repository, ignore_errors=True)


def _watch_maven(command: list[str], library: Library, report: Report) -> None:
    """Run Maven and report each jar of the library that it says it has."""
    wanted = checksums(library)
    what = f"Fetching {library.capitalize()}"
    fetched: set[str] = set()
    said: list[str] = []
    report(what, 0, len(wanted))
    with subprocess.Popen(  # noqa: S603 - the command is built above
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            said.append(line.rstrip())
            file = line.split(" (")[0].rpartition("/")[2].strip()
            if "Downloaded" in line and file in wanted:
                fetched.add(file)
                report(what, len(fetched), len(wanted))
    if running.returncode != 0:
        errors = [line for line in said if line.startswith("[ERROR]")] or said
        raise StackUnavailable(
            f"Maven could not fetch {library}: {' '.join(errors[:1])}. Look at the network and try again."
        )
    report(what, len(wanted), len(wanted))
