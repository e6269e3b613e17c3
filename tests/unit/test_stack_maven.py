"""Jars come from the cache where they are right, from Maven where they are not, and never unverified."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tocsin.deploy import maven
from tocsin.deploy.stack_errors import StackUnavailable
from tocsin.deploy.stack_java import find_java

#: Does what Maven is asked to: puts a jar into -DoutputDirectory, says so, and counts its calls.
MAVEN = """#!/bin/sh
for argument in "$@"; do
  case $argument in
    -DoutputDirectory=*) folder=${argument#*=} ;;
    --activate-profiles=*) library=${argument#*=} ;;
  esac
done
echo "$library" >> "$CALLS"
printf '%s' "$library" > "$folder/$library.jar"
echo "[INFO] Downloaded from central: https://example.org/$library.jar (9 B at 9 B/s)"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, one jar per library, and a Maven that notes its calls in the returned file."""
    program(tmp_path / "bin" / "mvn", MAVEN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(
        maven, "checksums", lambda library: {f"{library}.jar": hashlib.sha256(library.encode()).hexdigest()}
    )
    return tmp_path / "calls"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def quiet(what: str, done: int, total: int) -> None:
    pass


def test_jars_are_fetched_once_and_progress_is_told(calls: Path) -> None:
    told: list[tuple[str, int, int]] = []
    maven.fetch_jars(lambda *step: told.append(step))
    maven.fetch_jars(lambda *step: told.append(step))

    assert calls.read_text().split() == ["cassandra", "kafka"]
    assert told[:2] == [("Fetching Cassandra", 0, 1), ("Fetching Cassandra", 1, 1)]


def test_a_damaged_jar_is_fetched_again(calls: Path) -> None:
    maven.fetch_jars(quiet)
    jar = maven.jar_folder("kafka") / "kafka.jar"
    jar.write_bytes(b"damaged")

    maven.fetch_jars(quiet)

    assert jar.read_bytes() == b"kafka"
    assert calls.read_text().split() == ["cassandra", "kafka", "kafka"]


def test_a_jar_that_is_not_the_expected_one_is_refused(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "checksums", lambda library: {f"{library}.jar": "0" * 64})

    with pytest.raises(StackUnavailable, match=r"cassandra\.jar is not the file that was expected"):
        maven.fetch_jars(quiet)


def test_a_missing_maven_is_one_line_that_says_what_to_install(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(StackUnavailable, match=r"^Maven is missing\. Install it .*$"):
        maven.fetch_jars(quiet)


def test_a_maven_that_fails_is_quoted(calls: Path) -> None:
    program(calls.parent / "bin" / "mvn", "#!/bin/sh\necho '[ERROR] no route to host'\nexit 1\n")

    with pytest.raises(StackUnavailable, match="no route to host"):
        maven.fetch_jars(quiet)


def test_every_jar_of_the_package_has_a_checksum() -> None:
    for library in ("cassandra", "kafka"):
        files = maven.checksums(library)
        assert any(name.startswith(library) for name in files)
        assert all(name.endswith(".jar") and len(digest) == 64 for name, digest in files.items())


@pytest.mark.parametrize("said", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_a_java_that_cassandra_runs_on_is_taken(calls: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    java = calls.parent / "bin" / "java"
    program(java, f"#!/bin/sh\necho '{said}' >&2\n")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert find_java() == java


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('java version "1.8.0_402"', "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('openjdk version "25" 2025-09-16', "is Java 25"),
        ("segmentation fault", "is Java of an unknown version"),
    ],
)
def test_a_java_too_old_or_too_new_is_named(
    calls: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str
) -> None:
    program(calls.parent / "home" / "bin" / "java", f"#!/bin/sh\necho '{said}' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(calls.parent / "home"))

    with pytest.raises(StackUnavailable, match=rf"{found}, Cassandra needs 17 to 23\. Install Java 17"):
        find_java()


def test_a_missing_java_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(StackUnavailable, match=r"^Java is missing\. Install Java 17 .*$"):
        find_java()
