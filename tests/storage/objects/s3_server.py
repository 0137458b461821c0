"""An S3 server in a thread of its own, which can be told to fail."""

from __future__ import annotations

import contextlib
import itertools
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

REGION = "us-east-1"
# All servers of a process share what is in the buckets.
_NUMBERS = itertools.count(1)


class S3Server:
    """`fails` says of a request, by method and path with query, whether it is answered 503."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent)
        self.fails: Callable[[str, str], bool] = lambda method, path: False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def create_bucket(self) -> str:
        """A new one, without objects."""
        name = f"bucket-{next(_NUMBERS)}"
        self.send("PUT", name)
        return name

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """A request that did not come from a store of ours."""
        request = urllib.request.Request(f"{self.address}/{path}", body, headers, method=method)
        urllib.request.urlopen(request, timeout=10).close()

    def fill(self, bucket: str, keys: Iterable[str]) -> None:
        """Puts an object under each key, without the thousand requests."""
        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, b"1")

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.01)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"] + ("?" + environ["QUERY_STRING"] if environ["QUERY_STRING"] else "")
        if self.fails(environ["REQUEST_METHOD"], path):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Service Unavailable", [("content-length", "0")])
            return []
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer


class _Silent(WSGIRequestHandler):
    def log(self, *arguments: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def start_s3_server() -> Iterator[S3Server]:
    server = S3Server()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
