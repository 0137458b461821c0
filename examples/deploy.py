"""Deploys an example as an app that everybody may clone: `python examples/deploy.py examples/support-desk NAME`.

The server's address is in BAOBAB, an API key in KEY.
"""

import hashlib
import json
import os
import sys
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

Request = tuple[str, str, Any]
"""Method, path or address, and the body: bytes as they are, anything else as JSON."""


def deploy(folder: Path, name: str) -> Generator[Request, Any, str]:
    """Yields the requests that deploy an example, and is sent the answer of each. Returns the id of the app."""
    app: str = (yield ("POST", "/init", {"name": name}))["app_id"]
    base = f"/v1/{app}"
    yield "POST", f"{base}/schema/apply", {"schema": read_json(folder / "schema.json")}
    for policy in read_json(folder / "policies.json"):
        yield "POST", f"{base}/rls/policies", policy
    for table, rows in read_json(folder / "seed.json", {}).items():
        for row in rows:
            yield "POST", f"{base}/{table}", row
    for file in sorted((folder / "functions").glob("*.js")):
        settings = read_json(file.with_suffix(".json"), {})
        yield "POST", f"{base}/functions", {"name": file.stem, "code": file.read_text(), **settings}
    for file in sorted((folder / "agents").glob("*.json")):
        yield "POST", f"{base}/agents", {"name": file.stem, **read_json(file)}
    for collection, settings in read_json(folder / "collections.json", {}).items():
        yield "POST", f"{base}/rag/collections", {"name": collection, **settings}
        # The documents are in the folder of the collection's name. Clones get those that are marked.
        for file in sorted((folder / collection).glob("*.md")):
            document = {"text": file.read_text(), "filename": file.name, "metadata": {"_seed": True}}
            yield "POST", f"{base}/rag/collections/{collection}/ingest", document
    pages = {path.relative_to(folder / "site").as_posix(): path.read_text() for path in list_files(folder / "site")}
    yield "POST", f"{base}/frontend/deployments/files", {"files": pages}
    yield from push(folder, base)
    yield "PATCH", f"{base}/config/visibility", {"visibility": "public", "listed": True}
    return app


def push(folder: Path, base: str) -> Generator[Request, Any, None]:
    """Pushes the folder to the app's repository, from which whoever clones the app pulls it."""
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in list_files(folder)}
    digests = {hashlib.sha256(content).hexdigest(): content for content in contents.values()}
    files = [
        {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for path, content in contents.items()
    ]
    preparation = yield "POST", f"{base}/repo/snapshots/prepare", {"files": files}
    for missing in preparation["missing_blobs"]:
        yield "PUT", missing["uploadUrl"], digests[missing["sha256"]]
    yield "POST", f"{base}/repo/snapshots/commit", {"manifest": {"files": files}}


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read_json(path: Path, default: Any = None) -> Any:
    """Reads a file. default: what a file that is not there counts as; None if it has to be there."""
    if default is not None and not path.exists():
        return default
    return json.loads(path.read_text())


def send(request: Request) -> Any:
    method, path, body = request
    address = path if "://" in path else os.environ["BAOBAB"] + path
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['KEY']}"}
    if isinstance(body, bytes):
        headers = {"content-type": "application/octet-stream"}
    message = urllib.request.Request(address, content, headers, method=method)  # noqa: S310 - the given server
    with urllib.request.urlopen(message) as answer:  # noqa: S310
        text = answer.read()
    return json.loads(text) if text else None


def main() -> None:
    requests, answer = deploy(Path(sys.argv[1]), sys.argv[2]), None
    while True:
        try:
            answer = send(requests.send(answer))
        except StopIteration as end:
            sys.stdout.write(f"{end.value}\n")
            return


if __name__ == "__main__":
    main()
