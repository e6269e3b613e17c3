"""What `tocsin up --secure` adds: TLS and a password on Cassandra and Kafka, as a real cluster has them.

Everything is made once for a stack, in a folder that only its user may enter, and goes with the stack:

    <stack>/security/store.p12      the services' certificate and key
                     ca.pem         that certificate, which signed itself: what clients trust
                     environment    TOCSIN_* variables that let clients in; `source` it
                     user-made      there once Cassandra knows the user (Kafka learns of it when its storage is made)

Java's own keytool makes the certificate, so nothing more than for any other stack has to be installed. Cassandra begins
with a user whose password everybody knows; it makes ours, and then may not log in any more.
"""

from __future__ import annotations

import secrets
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from tocsin.deploy.stack_config import filled_in
from tocsin.deploy.stack_errors import StackUnavailable

USER = "tocsin"
PROTOCOL = "SASL_SSL"
MECHANISM = "SCRAM-SHA-512"
#: A stack is for days, its certificate for long enough.
VALID_DAYS = 3_650
#: What Cassandra is made with: user and password alike.
DEFAULT_USER = "cassandra"


class StackSecurity:
    """Certificate and user of the stack in a directory."""

    def __init__(self, stack_directory: Path) -> None:
        self.directory = stack_directory / "security"
        self.key_store = self.directory / "store.p12"
        self.ca_file = self.directory / "ca.pem"
        self.environment_file = self.directory / "environment"
        self._user_made = self.directory / "user-made"

    def make(self, java: Path, addresses: tuple[str, ...]) -> None:
        """Make what is missing.

        Args:
            java: the services' Java; its keytool lies beside it.
            addresses: where the services listen; the certificate names them.

        Raises:
            StackUnavailable: keytool is missing, or refuses.
        """
        if self.environment_file.exists():
            return
        self.directory.parent.chmod(0o700)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self.key_store.unlink(missing_ok=True)
        password = secrets.token_urlsafe(24)
        names = ",".join(["dns:localhost", *(f"ip:{address}" for address in addresses)])
        extensions = ["-ext", f"san={names}", "-ext", "bc:critical=ca:true"]
        extensions += ["-ext", "ku:critical=digitalSignature,keyCertSign"]
        pair = ["-genkeypair", "-alias", USER, "-dname", "CN=Tocsin local stack", "-keyalg", "EC", *extensions]
        stored = ["-keystore", str(self.key_store), "-storetype", "PKCS12", "-storepass:env", "STORE_PASSWORD"]
        _keytool(java, [*pair, "-validity", str(VALID_DAYS), *stored], password)
        _keytool(java, ["-exportcert", "-rfc", "-alias", USER, "-file", str(self.ca_file), *stored], password)
        variables = {
            "TOCSIN_CASSANDRA_USERNAME": USER,
            "TOCSIN_CASSANDRA_PASSWORD": password,
            "TOCSIN_CASSANDRA_CA_FILE": str(self.ca_file),
            "TOCSIN_KAFKA_PROTOCOL": PROTOCOL,
            "TOCSIN_KAFKA_MECHANISM": MECHANISM,
            "TOCSIN_KAFKA_USERNAME": USER,
            "TOCSIN_KAFKA_PASSWORD": password,
            "TOCSIN_KAFKA_CA_FILE": str(self.ca_file),
        }
        self.environment_file.write_text("".join(f"export {name}={value!r}\n" for name, value in variables.items()))

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What lets a client in."""
        lines = (line.removeprefix("export ") for line in self.environment_file.read_text().splitlines())
        pairs = (line.partition("=") for line in lines)
        return {name: value.strip("'") for name, _, value in pairs}

    def remove(self) -> None:
        """Delete all of it."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def cassandra_settings(self) -> str:
        """What is appended to cassandra.yaml."""
        return self._filled_in("cassandra-secure.yaml")

    def kafka_settings(self) -> str:
        """What is appended to kraft.properties."""
        return self._filled_in("kraft-secure.properties")

    def kafka_user(self) -> str:
        """The user as Kafka's storage is formatted with it."""
        return f"{MECHANISM}=[name={USER},password={self._password}]"

    def why_no_user(self, address: str, port: int) -> str | None:
        """Make our user in Cassandra where it is missing; return why it still is, None where it is not."""
        if self._user_made.exists():
            return None
        from tocsin.schema.cassandra_probe import why_not_user

        begin = (DEFAULT_USER, DEFAULT_USER)
        lack = why_not_user(address, port, self.tls(), begin=begin, wanted=(USER, self._password))
        if lack is None:
            self._user_made.touch()
        return lack

    def credentials(self) -> tuple[str, str]:
        """User and password, of both services."""
        return USER, self._password

    def tls(self) -> ssl.SSLContext:
        """What trusts the stack's certificate."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    @property
    def _password(self) -> str:
        return self.environment["TOCSIN_CASSANDRA_PASSWORD"]

    def _filled_in(self, name: str) -> str:
        values = {"key_store": self.key_store, "ca_file": self.ca_file, "user": USER, "password": self._password}
        return filled_in(name, **values)


def _keytool(java: Path, arguments: list[str], password: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - beside a found Java; the password stays out of the list of processes
            [java.with_name("keytool"), *arguments],
            env={"STORE_PASSWORD": password},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise StackUnavailable(
            f"keytool cannot be run beside {java}: {error.strerror}. Install all of Java."
        ) from error
    if done.returncode != 0:
        raise StackUnavailable(f"keytool made no certificate: {(done.stdout + done.stderr).strip()}")
