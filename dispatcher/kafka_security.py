"""How to reach a secured Kafka: the same settings for both clients, from the environment, never from a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.schema.errors import SettingsError
from tocsin.schema.secret_files import read_secret

#: Prefix of the environment variables `KafkaSecurity.from_environment` reads.
ENVIRONMENT_PREFIX = "TOCSIN_KAFKA_"

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: What both clients speak without further libraries.
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Password(str):
    """A password that clients can use and no log line shows: they print their settings by `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'********'"


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSecurity:
    """TLS and SASL towards the brokers; the default is neither.

    Raises:
        SettingsError: a value is unknown, or one needs another that is missing.
    """

    protocol: str = "PLAINTEXT"
    #: SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    #: Certificates trusted for the brokers, PEM; the host's own where absent.
    ca_file: str | None = None
    #: Our certificate and key towards the brokers, PEM.
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if self.password is not None:
            object.__setattr__(self, "password", Password(self.password))
        if self.protocol not in _PROTOCOLS:
            raise SettingsError(f"protocol is {self.protocol!r}; choose one of {', '.join(_PROTOCOLS)}.")
        if self.sasl:
            if self.mechanism not in _MECHANISMS:
                raise SettingsError(f"mechanism is {self.mechanism!r}; choose one of {', '.join(_MECHANISMS)}.")
            if not self.username or not self.password:
                raise SettingsError(f"protocol {self.protocol} needs a username and a password; set both.")
        elif self.mechanism or self.username or self.password:
            raise SettingsError(f"protocol {self.protocol} uses no username; set protocol SASL_SSL, or remove it.")
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise SettingsError(f"protocol {self.protocol} uses no certificates; set protocol SSL or SASL_SSL.")
        if (self.cert_file is None) != (self.key_file is None):
            raise SettingsError("cert_file and key_file belong together; set both or neither.")

    @property
    def sasl(self) -> bool:
        """Whether we name ourselves by user and password."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> KafkaSecurity:
        """Read TOCSIN_KAFKA_PROTOCOL, _MECHANISM, _USERNAME, _PASSWORD, _CA_FILE, _CERT_FILE and _KEY_FILE.

        `TOCSIN_KAFKA_PASSWORD_FILE` names a file that holds the password, for mounted secrets.

        Raises:
            SettingsError: a value is unknown, one needs another that is missing, or the file cannot be read.
        """
        names = ("protocol", "mechanism", "username", "ca_file", "cert_file", "key_file")
        found = {name: environment.get(ENVIRONMENT_PREFIX + name.upper()) or None for name in names}
        found["password"] = read_secret(environment, f"{ENVIRONMENT_PREFIX}PASSWORD")
        return cls(**{name: value for name, value in found.items() if value is not None})
