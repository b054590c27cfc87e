"""Addresses of graphs: turns what a user writes into an object store, and into the address that Lance takes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from omnigraph.errors import InvalidInput
from omnigraph.storage.local import LocalStore
from omnigraph.storage.store import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_S3, _GCS = {"s3": "s3", "s3a": "s3"}, {"gs": "gs", "gcs": "gs"}
_AZURE = {"az": "az", "azure": "az", "adl": "az", "abfs": "abfs", "abfss": "abfs"}
_REMOTE_SCHEMES = _S3 | _GCS | _AZURE
_ADVICE = "Use a directory, file://, s3://bucket/path, gs://bucket/path, az://container/path or abfs://..."

# Options of the HTTP client; obstore takes them apart from the store's own.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
_LANCE_ONLY = frozenset({"client_max_retries", "client_retry_timeout", "download_retry_count"})
_OPTION_PREFIXES = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_storage_", "azure_"), "abfs": ()}
_S3_SYNONYMS = {
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "default_region": "region",
    "token": "session_token",
    "bucket_name": "bucket",
}
_EXPRESS_SUFFIX = "--x-s3"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a graph in its normal form. `options` use the names that obstore and Lance share."""

    uri: str
    scheme: str  # "file" or one of the remote schemes
    options: Mapping[str, str]

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"


def parse_address(
    uri: str, options: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Address:
    """The normal form of `uri`, with the options that reach it from this environment."""
    scheme = _SCHEME.match(uri)
    if not uri.strip():
        raise InvalidInput("the graph's address is empty", code="invalid_address", advice=_ADVICE)
    if scheme is None or scheme.group(1).lower() == "file":
        return Address(_local_path(uri), "file", {})
    remote_scheme = _REMOTE_SCHEMES.get(scheme.group(1).lower())
    if remote_scheme is None:
        raise InvalidInput(
            f"cannot store a graph at {uri!r}: unknown scheme {scheme.group(1)!r}",
            code="invalid_address",
            advice=_ADVICE,
        )
    remote_uri = _remote_uri(remote_scheme, uri)
    remote_options = _remote_options(remote_scheme, options or {}, os.environ if environ is None else environ)
    if not lists_in_order(remote_uri):
        remote_options.setdefault("aws_s3_express", "true")
    return Address(remote_uri, remote_scheme, remote_options)


def open_store(uri: str, storage_options: Mapping[str, str] | None = None, *, fsync: bool = True) -> Store:
    """The store at `uri`. Sends no request: a wrong address or a dead server shows at the first use."""
    address = parse_address(uri, storage_options)
    if address.is_local:
        return LocalStore(address.uri, fsync=fsync)
    # obstore takes 60 ms to import: a graph in a directory does not pay for it.
    from omnigraph.storage.remote import open_remote

    client_options = {name: value for name, value in address.options.items() if name in _CLIENT_OPTIONS}
    other_clients_options = _CLIENT_OPTIONS | _LANCE_ONLY
    store_options = {name: value for name, value in address.options.items() if name not in other_clients_options}
    if address.scheme == "s3":
        # One plain DELETE per key: not every S3-compatible store knows the bulk request.
        store_options.setdefault("aws_disable_bulk_delete", "true")
    return open_remote(address.uri, store_options, client_options, ordered=lists_in_order(address.uri))


def lists_in_order(uri: str) -> bool:
    """Whether the store at this address lists keys in order; S3 Express directory buckets do not (H28)."""
    bucket = uri.partition("://")[2].partition("/")[0]
    return not (uri.startswith("s3://") and bucket.endswith(_EXPRESS_SUFFIX))


def _local_path(uri: str) -> str:
    """The real path: a symbolic link that is changed later must not move an open graph."""
    if _SCHEME.match(uri) is None:
        return os.path.realpath(os.path.expanduser(uri))
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidInput(
            f"not a local address: {uri!r}",
            code="invalid_address",
            advice="Write file:///absolute/path with three slashes, or the path alone",
        )
    return os.path.realpath(unquote(parts.path))


def _remote_uri(scheme: str, uri: str) -> str:
    path = uri.partition("://")[2]
    # obstore and Lance would read a percent sign, a query or a blank differently, as two different addresses.
    if re.search(r"[%?#\\\s]", path):
        raise InvalidInput(
            f"not a storage address: {uri!r}",
            code="invalid_address",
            advice="Use plain characters; options belong into storage options, not into the address",
        )
    bucket, *folders = [part for part in path.split("/") if part] or [""]
    if not bucket or path.startswith("/") or any(part in (".", "..") for part in folders):
        raise InvalidInput(
            f"not a storage address: {uri!r}", code="invalid_address", advice=f"Write {scheme}://bucket/path"
        )
    return f"{scheme}://{'/'.join([bucket, *folders])}"


def _remote_options(scheme: str, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    named_options = {_option_name(scheme, name): str(value) for name, value in options.items()}
    if scheme != "s3":
        return named_options
    if "aws_endpoint" not in named_options:
        endpoint = next((environ[name] for name in _ENDPOINT_VARIABLES if environ.get(name)), None)
        if endpoint:
            named_options["aws_endpoint"] = endpoint
    # Whoever writes http:// wants no TLS; without this option obstore and Lance refuse it without saying why.
    if named_options.get("aws_endpoint", "").startswith("http://"):
        named_options.setdefault("allow_http", "true")
    return named_options


def _option_name(scheme: str, name: str) -> str:
    """The one spelling of an option, so that obstore and Lance cannot prefer different synonyms."""
    lowered = name.lower()
    bare = next((lowered[len(head) :] for head in _OPTION_PREFIXES[scheme] if lowered.startswith(head)), lowered)
    if bare in _CLIENT_OPTIONS or bare in _LANCE_ONLY:
        return bare
    return f"aws_{_S3_SYNONYMS.get(bare, bare)}" if scheme == "s3" else lowered
