"""The configuration files of the local stack's services, filled in from templates beside this file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template

#: The tokens of Murmur3 run over this whole span, signed.
TOKENS = 2**64


def template(name: str) -> str:
    """Return a file of this package as text."""
    return resources.files("tocsin.deploy").joinpath(name).read_text()


def write_config(path: Path, **values: object) -> Path:
    """Fill in the template of the same name, write it, and return where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(filled_in(path.name, **values))
    return path


def filled_in(name: str, **values: object) -> str:
    """Return a template, its words filled in. Raises KeyError where one has no value."""
    return Template(template(name)).substitute(values)


def initial_token(node: int, nodes: int) -> int:
    """Return where the node's share of the ring ends: even shares, the first at the lowest token."""
    return node * TOKENS // nodes - TOKENS // 2
