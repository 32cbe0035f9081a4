"""TLS of the exposed ports, from a folder that may change while the server runs.

The folder is a Secret of type kubernetes.io/tls as the kubelet mounts it: `tls.crt`, `tls.key` and, where callers must
show a certificate too, `ca.crt` of those who sign theirs. A connection is made with what is there at its beginning; if
that cannot be read just then, with what was there before.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from .exits import ExitCode, UnservableError
from .log import logger

CERTIFICATE, KEY, CLIENT_AUTHORITY = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class Files:
    certificate: bytes
    key: bytes
    # Of those who sign callers' certificates; None where callers need none.
    client_authority: bytes | None


class TlsFolder:
    """Raises UnservableError where the folder holds no usable certificate at the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._files = self._told = self._read()
            self.context = self._context()
        except (OSError, ssl.SSLError) as error:
            words = f"no TLS from {folder}: {error}. It must hold {CERTIFICATE} and {KEY}, in PEM, that fit each other."
            raise UnservableError(ExitCode.BAD_CONFIGURATION, words) from None

    @property
    def mutual(self) -> bool:
        """Whether callers must show a certificate. Fixed at the start."""
        return self._files.client_authority is not None

    def grpc_credentials(self) -> grpc.ServerCredentials:
        # The stubs leave out that None may be returned.
        changed: Any = self._changed_configuration
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), changed, require_client_authentication=self.mutual
        )

    def refresh(self) -> bool:
        """Takes on what the folder holds now, for new connections; whether that was something else."""
        try:
            found = self._read()
            if found == self._files:
                return False
            # In place: the listener keeps this context. Checked on another one first, so that half a change breaks
            # nothing.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
        except (OSError, ssl.SSLError) as error:
            logger().warning("the TLS folder cannot be used; going on with what was there", words=str(error))
            return False
        self._files = found
        logger().info("the TLS certificate has changed")
        return True

    def _read(self) -> Files:
        authority = self._folder / CLIENT_AUTHORITY
        return Files(
            (self._folder / CERTIFICATE).read_bytes(),
            (self._folder / KEY).read_bytes(),
            authority.read_bytes() if authority.exists() else None,
        )

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.mutual:
            context.verify_mode = ssl.CERT_REQUIRED
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
        if self.mutual:
            context.load_verify_locations(self._folder / CLIENT_AUTHORITY)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self._told = files = self._files
        return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)], files.client_authority)

    def _changed_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC at each new connection, on a thread of its own; None: nothing has changed."""
        self.refresh()
        return None if self._files is self._told else self._configuration()
