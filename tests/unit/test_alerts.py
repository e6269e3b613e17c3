"""Alerts and dashboard ask for metrics that are exported, in expressions that Prometheus can read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.metrics_core import Metric
from unit.test_metrics import exercise

from tocsin.dispatcher.measured import CallMetrics
from tocsin.dispatcher.metrics import Metrics
from tocsin.dispatcher.publisher import Outcome

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: What prometheus_client exports of every process.
OF_PROCESSES = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "dashboards" / "tocsin.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


@pytest.fixture(scope="module")
def families() -> list[Metric]:
    metrics, calls = Metrics(), CallMetrics()
    exercise(metrics)
    calls.answered("write_frontier", 1)
    calls.failed("write_pack", "timeout")
    calls.published([Outcome.ACKED], 1)
    return [*metrics.collect(), *calls.collect()]


@pytest.fixture(scope="module")
def exported(families: list[Metric]) -> dict[str, set[str]]:
    """Every series' name and its labels."""
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Names of metrics with the labels that are matched."""
    for name, matchers in re.findall(r"\b((?:tocsin|process)_\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_is_read_by_prometheus_and_asks_for_what_is_exported(
    where: str, expression: str, exported: dict[str, set[str]]
) -> None:
    promql_parser.parse(expression)
    asked = list(selectors(expression))
    assert asked, where
    for name, labels in asked:
        assert name in exported or name in OF_PROCESSES, f"{where}: {name}"
        assert labels <= exported.get(name, set()), f"{where}: {name}"
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
    known = {label for name, _ in asked for label in exported.get(name, set())} | {"instance"}
    assert grouped <= known, where


def test_every_metric_is_on_the_dashboard_or_in_an_alert(families: list[Metric]) -> None:
    asked = {name for _, expression in expressions() for name, _ in selectors(expression)}
    unseen = [family.name for family in families if not any(name.startswith(family.name) for name in asked)]
    assert unseen == []


def test_every_alert_says_what_to_do_where_a_runbook_says_more() -> None:
    headings = {
        heading.lower()
        for heading in re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    }
    assert len(rules()) >= 10
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / page).is_file()
        assert anchor == rule["alert"].lower()
        assert anchor in headings


def test_that_no_dispatcher_lives_is_an_alert_although_nobody_is_there_to_say_so() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "TocsinNoDispatcher")
    assert rule["expr"] == "absent(tocsin_leases)"


def test_panels_do_not_overlap_and_each_says_what_it_shows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        assert panel["description"].endswith(".")
        taken |= cells


def test_what_compose_mounts_is_there_and_nothing_is_reached_from_outside() -> None:
    services = yaml.safe_load((DEPLOY / "observability.yaml").read_text())["services"]
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            assert (DEPLOY / volume.split(":")[0]).exists(), volume
    source = yaml.safe_load((DEPLOY / "grafana-datasource.yaml").read_text())["datasources"][0]
    used = {target["datasource"]["uid"] for panel in panels() for target in panel["targets"]}
    assert used == {source["uid"]}
    (scraped,) = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    (found_by,) = scraped["dns_sd_configs"]
    dispatcher = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][found_by["names"][0]]
    assert f"0.0.0.0:{found_by['port']}" in dispatcher["command"]


def test_alerts_fire_when_they_should_and_not_before() -> None:
    """Prometheus' own rule tester decides, where it is installed; what it is given names every rule that ships."""
    tests = ROOT / "tests" / "unit" / "alerts_test.yaml"
    text = tests.read_text()
    told = yaml.safe_load(text)
    assert [(tests.parent / file).resolve() for file in told["rule_files"]] == [DEPLOY / "alerts.yaml"]
    assert [rule["alert"] for rule in rules() if rule["alert"] not in text] == []
    promtool = shutil.which("promtool")
    if promtool is not None:
        ran = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
