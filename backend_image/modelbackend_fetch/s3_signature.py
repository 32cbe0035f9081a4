"""AWS Signature Version 4, by Amazon's own library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from awscrt.auth import (
    AwsCredentialsProvider,
    AwsSignatureType,
    AwsSignedBodyHeaderType,
    AwsSignedBodyValue,
    AwsSigningAlgorithm,
    AwsSigningConfig,
    aws_sign_request,
)
from awscrt.http import HttpHeaders, HttpRequest
from yarl import URL

SIGNING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Keys:
    access_key_id: str
    secret_access_key: str
    session_token: str

    def __repr__(self) -> str:
        return "Keys(...)"


def quoted(path: str) -> str:
    """As S3 reads it: every byte but RFC 3986's unreserved ones and the slash."""
    return quote(path, safe="/~")


def headers(url: URL, region: str, keys: Keys) -> dict[str, str]:
    """Of a GET that is sent soon: a signature is good for some minutes."""
    request = HttpRequest("GET", url.raw_path, HttpHeaders([("Host", url.host_port_subcomponent or "")]))
    config = AwsSigningConfig(
        algorithm=AwsSigningAlgorithm.V4,
        signature_type=AwsSignatureType.HTTP_REQUEST_HEADERS,
        credentials_provider=AwsCredentialsProvider.new_static(
            keys.access_key_id, keys.secret_access_key, keys.session_token or None
        ),
        region=region,
        service="s3",
        date=datetime.now(UTC),
        # S3 signs a path as it is sent, which for other services is encoded once more.
        use_double_uri_encode=False,
        should_normalize_uri_path=False,
        signed_body_value=AwsSignedBodyValue.EMPTY_SHA256,
        signed_body_header_type=AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
    )
    signed = aws_sign_request(request, config).result(SIGNING_SECONDS)
    return {name: value for name, value in signed.headers if name.lower() != "host"}
