"""What a command is told: its options, else the environment, else tocsin.toml, else the default.

    --store URL   >   TOCSIN_STORE=URL   >   store = "URL" in ./tocsin.toml, or in the file that --config names

Tables of the file are `TOCSIN_<TABLE>__<KEY>` in the environment: TOCSIN_TIMING__LEASE_TTL_MS=4000. An unknown key of
the file is refused, so a misspelt setting is never silently a default. Credentials are no settings: the stores and the
sinks read them from TOCSIN_CASSANDRA_* and TOCSIN_KAFKA_*.

`timing` must be the same for every process of a store: leases and levels are agreed on by it.
"""

from __future__ import annotations

import tomllib
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from tocsin.dispatcher.publisher import PublisherSettings
from tocsin.schema.errors import SettingsError
from tocsin.schema.timing import Timing

FILE_NAME: Final = "tocsin.toml"
#: Names the file in place of --config.
CONFIG_VARIABLE: Final = "TOCSIN_CONFIG"
#: The file that --config named for this run; without one, FILE_NAME where it exists.
chosen_file: ContextVar[Path | None] = ContextVar("chosen_file", default=None)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="sqlite:///path.db or cassandra://host1,host2/keyspace.",
        show_default="configured",
    ),
]
SinkOption = Annotated[
    str | None,
    typer.Option(
        "--sink", metavar="URL", help="kafka://host:9092, stdout: or jsonl:///path.", show_default="configured"
    ),
]


class Configuration(BaseSettings):
    """Every setting of the command line, checked."""

    model_config = SettingsConfigDict(
        env_prefix="TOCSIN_", env_nested_delimiter="__", extra="forbid", frozen=True, toml_file=FILE_NAME
    )

    store: str = "sqlite:///tocsin.db"
    sink: str = "stdout:"
    #: How long a command waits for the store.
    timeout_ms: int = Field(10_000, ge=1, le=600_000)
    kafka_client: Literal["confluent-kafka", "kafka-python"] = "confluent-kafka"
    #: Topics that may be published to, with * and ? as in file names; empty: every topic the broker lets us.
    allowed_topics: tuple[str, ...] = ()
    #: How many dispatcher processes `tocsin dispatch` runs.
    processes: int = Field(1, ge=1, le=256)
    #: Where /metrics, /healthz and /readyz are: host:port, or `off`. Port 0: the system chooses one.
    metrics: str = "127.0.0.1:0"
    log: Literal["auto", "text", "json"] = "auto"
    #: Records a second of one dispatcher process, by topic; a topic without one is not limited.
    topic_rates: dict[str, int] = {}
    #: Schedules a second that one command creates for a tenant, by its name; `*`: for every other.
    create_rates: dict[str, int] = {}
    timing: dict[str, int] = {}
    publisher: dict[str, int | str] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 — the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 — the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options, environment, file: the first that speaks decides."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    def protocol_timing(self) -> Timing:
        """The durations of the protocol. Raises SettingsError for an unknown name or a relation that does not hold."""
        _refuse_unknown("timing", self.timing, Timing.__struct_fields__)
        return Timing(**self.timing)

    def publisher_settings(self) -> PublisherSettings:
        """Bounds of a Kafka sink. Raises SettingsError for an unknown name or a value out of range."""
        _refuse_unknown("publisher", self.publisher, tuple(field.name for field in fields(PublisherSettings)))
        values: dict[str, Any] = dict(self.publisher)
        return PublisherSettings(**values)


def read_configuration(**options: Any) -> Configuration:
    """The configuration of one command; options that are None were not given.

    Raises:
        SettingsError: a setting is unknown or malformed, or the named file is missing.
    """
    file = chosen_file.get()
    if file is not None and not file.is_file():
        raise SettingsError(f"the configuration file {file} does not exist; correct --config.")
    given = {name: value for name, value in options.items() if value is not None}
    chosen = Configuration if file is None else _reading(file)
    try:
        return chosen(**given)
    except ValidationError as error:
        raise SettingsError("; ".join(_told(problem) for problem in error.errors())) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file or FILE_NAME} is not TOML ({error}); correct it.") from error
    except (SourceError, OSError) as error:
        raise SettingsError(f"the settings cannot be read: {error}.") from error


def _reading(file: Path) -> type[Configuration]:
    class ConfigurationOfFile(Configuration):
        model_config = SettingsConfigDict(toml_file=file)

    return ConfigurationOfFile


def _told(problem: Any) -> str:
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"there is no setting {name!r}; correct its name in {FILE_NAME}"
    return f"{name} is {problem['input']!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _refuse_unknown(table: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SettingsError(f"there is no setting {table}.{unknown[0]}; known are {', '.join(sorted(known))}.")
