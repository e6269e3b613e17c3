"""How to reach a Cassandra cluster: what the URL says, and what only the environment may say.

A URL ends up in logs, process lists and tickets, so it names hosts and a keyspace and nothing else. The rest:

=================================  ====================================================================
TOCSIN_CASSANDRA_USERNAME          with TOCSIN_CASSANDRA_PASSWORD: password authentication
TOCSIN_CASSANDRA_PASSWORD_FILE     instead of the password: a file whose first line it is
TOCSIN_CASSANDRA_CA_FILE           TLS, and the authority that must have signed the nodes' certificates
TOCSIN_CASSANDRA_CERT_FILE         with TOCSIN_CASSANDRA_KEY_FILE: our own certificate
TOCSIN_CASSANDRA_CONSISTENCY       `cluster` (QUORUM, SERIAL; the default) or `local` (LOCAL_QUORUM, LOCAL_SERIAL)
TOCSIN_CASSANDRA_DATACENTER        where `local` is
=================================  ====================================================================

One consistency level serves every process of a store: two majorities must intersect.
"""

from __future__ import annotations

import enum
import re
import ssl
from collections.abc import Mapping

import msgspec

from tocsin.schema.errors import SettingsError
from tocsin.schema.secret_files import read_secret

#: What Cassandra takes unquoted (CQL: identifiers), lower case so that nobody has to quote it.
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_PORT = 9042
_ENVIRONMENT = "TOCSIN_CASSANDRA_"


class Consistency(enum.Enum):
    """Whose majority counts: all replicas', or those of one data centre."""

    CLUSTER = "cluster"
    LOCAL = "local"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts and keyspace, and what it takes to be let in. Its repr shows no secret."""

    url: str
    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    consistency: Consistency = Consistency.CLUSTER
    datacenter: str | None = None

    def __post_init__(self) -> None:
        together = (
            (self.username, self.password, "USERNAME", "PASSWORD"),
            (self.cert_file, self.key_file, "CERT_FILE", "KEY_FILE"),
        )
        for one, other, name, other_name in together:
            if bool(one) != bool(other):
                raise SettingsError(f"{_ENVIRONMENT}{name} and {_ENVIRONMENT}{other_name} belong together; set both.")
        if self.cert_file and not self.ca_file:
            raise SettingsError(f"{_ENVIRONMENT}CERT_FILE needs {_ENVIRONMENT}CA_FILE; set it too.")
        if self.consistency is Consistency.LOCAL and not self.datacenter:
            raise SettingsError(f"{_ENVIRONMENT}CONSISTENCY=local needs {_ENVIRONMENT}DATACENTER; set it too.")

    def __repr__(self) -> str:
        return f"Access({self.url!r}, consistency={self.consistency.value!r})"

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, or None where no authority is named. Raises SettingsError for files that cannot be used."""
        if self.ca_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one too.
            raise SettingsError(f"the TLS files of {_ENVIRONMENT}* cannot be used: {error}; correct them.") from error
        return context


def read_access(url: str, environment: Mapping[str, str]) -> Access:
    """The access of a URL `cassandra://host1:port,host2/keyspace` and an environment.

    Raises:
        SettingsError: either is malformed, or the URL holds credentials.
    """
    address, _, keyspace = url.removeprefix("cassandra://").partition("/")
    if "@" in address:
        # The text is not shown: it holds a password.
        raise SettingsError(
            f"credentials must not stand in a store's URL; set {_ENVIRONMENT}USERNAME and {_ENVIRONMENT}PASSWORD."
        )
    if not _KEYSPACE.fullmatch(keyspace):
        raise SettingsError(
            f"{url!r} names no keyspace; expected cassandra://host1,host2/keyspace, "
            "the keyspace in lower case letters, digits and _, at most 48"
        )
    optional = {
        name: environment.get(_ENVIRONMENT + name.upper()) or None
        for name in ("username", "ca_file", "cert_file", "key_file", "datacenter")
    }
    password = read_secret(environment, f"{_ENVIRONMENT}PASSWORD")
    hosts = tuple(_host(url, text) for text in address.split(","))
    consistency = _consistency(environment)
    return Access(url=url, hosts=hosts, keyspace=keyspace, consistency=consistency, password=password, **optional)


def _consistency(environment: Mapping[str, str]) -> Consistency:
    text = environment.get(f"{_ENVIRONMENT}CONSISTENCY") or Consistency.CLUSTER.value
    try:
        return Consistency(text)
    except ValueError as error:
        raise SettingsError(f"{_ENVIRONMENT}CONSISTENCY is {text!r}; it is cluster or local.") from error


def _host(url: str, text: str) -> tuple[str, int]:
    """`host`, `host:port`, `[::1]` or `[::1]:port`."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]]+))(?::(\d{1,5}))?", text)
    if found is None or not 0 < int(found[3] or _PORT) < 2**16:
        raise SettingsError(f"{url!r}: {text!r} is no host; expected host or host:port")
    return found[1] or found[2], int(found[3] or _PORT)
