"""A graph in an object store: S3, Google Cloud Storage, Azure Blob Storage, through obstore.

Every error of obstore becomes one of the typed errors of `Store`. `AlreadyExistsError` becomes `EXISTS`, although it
may mean four things (H25): another writer created the key, this request did and its first response was lost, an
earlier attempt did, or nobody did (S3's 409). Only reading the key tells.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import obstore
from obstore import exceptions as failures
from obstore.store import from_url

from omnigraph.errors import Forbidden, InvalidInput, NotFound, OmnigraphError, Unavailable
from omnigraph.storage.keys import check_key, check_prefix
from omnigraph.storage.store import ObjectInfo, ObjectMissing, PutResult

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

# A request may begin its last retry just before the retry limit and then use its whole time: 10 s in all.
REQUEST_TIMEOUT_S = 6.0
RETRY_LIMIT_S = 4.0
CONNECT_TIMEOUT_S = 3.0
MAX_RETRIES = 2

PARALLEL_GETS = 16

# Fewer than any store puts on one page, so that taking the first chunk of the stream never asks for a second page.
FIRST_PAGE_KEYS = 100
_WHOLE_PAGE_KEYS = 1000

# A 404 to one of these is about the bucket: a key need not exist for them.
_NEEDS_BUCKET = frozenset({"create", "write", "list"})

_STATUS = re.compile(r"status code: (\d{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_BAD_TOKEN = re.compile(r"<Code>(?:ExpiredToken|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch)</Code>")
# The addresses at which a machine in the cloud is asked for its own credentials, when none were given.
_METADATA = re.compile(r"/latest/api/token|/latest/meta-data|computeMetadata|/metadata/identity")


class RemoteStore:
    """Objects below a prefix of one bucket or container."""

    def __init__(self, root: str, client: ObjectStore, *, ordered: bool = True) -> None:
        self._root = root
        self._client = client
        self._ordered = ordered
        self._pool: ThreadPoolExecutor | None = None
        self._pool_lock = threading.Lock()

    @property
    def root(self) -> str:
        return self._root

    def get(self, key: str) -> bytes:
        try:
            return bytes(obstore.get(self._client, check_key(key)).bytes())
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "read", key) from error

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`."""
        try:
            return bytes(obstore.get_range(self._client, check_key(key), start=start, end=end))
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "read", key) from error

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if len(keys) < 2:
            return [self._get_or_none(key) for key in keys]
        threads = self._threads()
        futures = [threads.submit(self._get_or_none, key) for key in keys]
        # Wait for all before raising an error: no request of a failed call may still run after it.
        wait(futures)
        return [future.result() for future in futures]

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        try:
            obstore.put(self._client, check_key(key), data, mode="create", use_multipart=False)
        except failures.AlreadyExistsError:
            return PutResult.EXISTS
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "create", key) from error
        return PutResult.CREATED

    def put(self, key: str, data: bytes) -> None:
        try:
            obstore.put(self._client, check_key(key), data, mode="overwrite", use_multipart=False)
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "write", key) from error

    @contextmanager
    def open_writer(self, key: str) -> Iterator[BinaryIO]:
        """A stream into an object, which appears or is replaced if the block ends without an error."""
        try:
            # No `with`: leaving it by an error would complete the upload of half a file.
            writer = obstore.open_writer(self._client, check_key(key))
            yield writer  # type: ignore[misc]  # callers only write to it
            writer.close()
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "write", key) from error

    def rename(self, old: str, new: str) -> None:
        """Copy and delete: object stores have no rename."""
        try:
            obstore.rename(self._client, check_key(old), check_key(new), overwrite=True)
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "write", new) from error

    def head(self, key: str) -> ObjectInfo:
        try:
            return _info(obstore.head(self._client, check_key(key)))
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "look up", key) from error

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        folder = check_prefix(prefix) or None
        try:
            if first_page and self._ordered:
                first = next(iter(obstore.list(self._client, folder, chunk_size=FIRST_PAGE_KEYS)), [])
                page = [_info(meta) for meta in first]
                if _in_order(page):
                    return page
                # The newest record could be on any page (H28): never trust the first page of this store again.
                self._ordered = False
            pages = obstore.list(self._client, folder, chunk_size=_WHOLE_PAGE_KEYS)
            return sorted((_info(meta) for page in pages for meta in page), key=_key)
        except (failures.BaseError, OSError) as error:
            raise self._classify_error(error, "list", prefix) from error

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self._client, check_key(key))
        except (failures.BaseError, OSError) as error:
            typed = self._classify_error(error, "delete", key)
            if not isinstance(typed, ObjectMissing):
                raise typed from error

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except ObjectMissing:
            return None

    def _threads(self) -> ThreadPoolExecutor:
        with self._pool_lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL_GETS, thread_name_prefix="omnigraph-get")
            return self._pool

    def _classify_error(self, error: Exception, verb: str, key: str) -> OmnigraphError:
        """The typed error for an error of obstore. LIST has no error classes, so the HTTP status decides too."""
        text = str(error).partition("\n\nDebug source")[0]
        status_match = _STATUS.search(text)
        status = int(status_match.group(1)) if status_match else None
        problem = f"cannot {verb} {key!r} in {self._root}"
        if _METADATA.search(text) or _is_refusal(error, status, text):
            return self._refusal_error(problem, status, has_credentials=_METADATA.search(text) is None)
        if _is_missing(error, status):
            return self._missing_error(
                problem, key, bucket=verb in _NEEDS_BUCKET or _NO_BUCKET.search(text) is not None
            )
        # S3 also answers 400 to an upload that stalled, which is worth another try.
        if "incorrectly configured region" in text or (status in (301, 307, 400) and "RequestTimeout" not in text):
            return InvalidInput(
                f"{problem}: the store does not accept the request as it is addressed: {_brief(text)}",
                code="store_configuration",
                advice="Check the region (AWS_REGION), the endpoint and the storage options",
                root=self._root,
            )
        return self._unavailable_error(problem, text, status)

    def _missing_error(self, problem: str, key: str, *, bucket: bool) -> NotFound:
        """A missing bucket is never reported as a missing key, which would be a statement about the graph."""
        if not bucket:
            return ObjectMissing(f"no object {key!r} in {self._root}", key=key, root=self._root)
        return NotFound(
            f"{problem}: the bucket does not exist",
            code="bucket_missing",
            advice="Create the bucket, or check its name and the endpoint",
            root=self._root,
        )

    def _refusal_error(self, problem: str, status: int | None, *, has_credentials: bool) -> Forbidden:
        if not has_credentials:
            return Forbidden(
                f"{problem}: no credentials were given, and this machine has none of its own",
                code="no_credentials",
                advice="Set them in the environment (AWS_ACCESS_KEY_ID, …) or as storage options",
                root=self._root,
            )
        return Forbidden(
            f"{problem}: the store refused the credentials" + (f" ({status})" if status else ""),
            advice="Check the credentials, and that they may get, put, list and delete below that address",
            root=self._root,
            status=status,
        )

    def _unavailable_error(self, problem: str, text: str, status: int | None) -> Unavailable:
        if status in (429, 503):
            advice, code = "The store asks for less load: try again later", "slow_down"
        else:
            advice, code = "Check that the store is up and reachable, and try again", "unavailable"
        return Unavailable(f"{problem}: {_brief(text)}", code=code, advice=advice, root=self._root, status=status)


def open_remote(
    root: str,
    config: Mapping[str, str],
    client: Mapping[str, str],
    *,
    timeout_s: float = REQUEST_TIMEOUT_S,
    retry_limit_s: float = RETRY_LIMIT_S,
    ordered: bool = True,
) -> RemoteStore:
    """The store at `root`, not yet connected: `config` holds options of the store, `client` those of HTTP."""
    bounds: dict[str, Any] = {"timeout": _seconds(timeout_s), "connect_timeout": _seconds(CONNECT_TIMEOUT_S)}
    options: ClientConfig = {**bounds, **client}  # type: ignore[typeddict-item]
    retry: RetryConfig = {
        "max_retries": MAX_RETRIES,
        "retry_timeout": timedelta(seconds=retry_limit_s),
        "backoff": {"init_backoff": _seconds(0.05), "max_backoff": _seconds(0.5), "base": 2},
    }
    try:
        store = from_url(root, config=dict(config), client_options=options, retry_config=retry)  # type: ignore[call-overload]
    except (failures.BaseError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"the storage options of {root} are not usable: {_brief(str(error))}",
            code="store_configuration",
            advice="Use the option names of the object_store crate, such as aws_endpoint or aws_access_key_id",
            root=root,
        ) from error
    return RemoteStore(root, store, ordered=ordered)


def _is_refusal(error: Exception, status: int | None, text: str) -> bool:
    denied = isinstance(error, failures.PermissionDeniedError | failures.UnauthenticatedError)
    return denied or status in (401, 403) or _BAD_TOKEN.search(text) is not None


def _is_missing(error: Exception, status: int | None) -> bool:
    return isinstance(error, FileNotFoundError | failures.NotFoundError) or status == 404


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"])


def _key(info: ObjectInfo) -> str:
    return info.key


def _in_order(page: list[ObjectInfo]) -> bool:
    return all(info.key < next_info.key for info, next_info in pairwise(page))


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _brief(text: str) -> str:
    """The first line of an obstore message: the rest is a dump of its internals and of the server's XML."""
    return text.strip().partition("\n")[0][:300]
