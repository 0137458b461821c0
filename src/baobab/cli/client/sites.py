"""`baobab sites`: deploy a folder as an app's web site, list deployments, roll back."""

import io
import os
import stat
import time
import zipfile
from pathlib import Path
from typing import Any

import click

from baobab.cli.client.errors import ClientError, json_option
from baobab.cli.client.output import app_option, print_json, print_table
from baobab.cli.client.server import Server, find_app, find_server, write_segment

_WAIT_SECONDS = 50
_UNFINISHED = ("WAITING", "UPLOADING", "BUILDING")
_PAUSE_SECONDS = 1.0
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip: the same folder is the same zip."""


@click.group()
def sites() -> None:
    """Deploy a folder as the web site of an app, list its deployments, and roll back to an earlier one."""


@sites.command()
@click.argument("folder", type=click.Path(path_type=Path))
@app_option
@click.option("--preview", is_flag=True, help="Do not make it live; print an address that shows it for an hour.")
@json_option
def deploy(folder: Path, app: str | None, *, preview: bool, as_json: bool) -> None:
    """Deploy the files in FOLDER, which a build has written, as the web site of the app.

    Example: `baobab sites deploy dist/ --app shop`

    What a deployment may hold is checked before anything is sent. Hidden files are left out and named. Prints the
    address and the id of the deployment. What was live stays live until the new one is ready, and if it fails.
    """
    content, left_out = build_zip(folder)
    server = find_server()
    base = f"/v1/{find_app(server, app)}/frontend/deployments"
    creation = server.call("POST", base, {"framework": "other"})
    server.put(creation["uploadUrl"], content, "application/zip")
    place = f"{base}/{write_segment(creation['id'])}"
    deployment = server.call("POST", f"{place}/start", {"live": not preview, "wait_seconds": _WAIT_SECONDS})
    while deployment["status"] in _UNFINISHED:
        time.sleep(_PAUSE_SECONDS)
        deployment = server.call("GET", place, query={"wait_seconds": _WAIT_SECONDS})
    if deployment["status"] != "READY":
        error = deployment["error"] or {}
        reason = error.get("message", f"it is {deployment['status']}")
        raise ClientError(
            f"The deployment {deployment['id']} failed: {reason}", str(error.get("code", "DEPLOY_FAILED")), deployment
        )
    address = server.call("GET", f"{place}/preview")["url"] if preview else deployment["url"]
    if as_json:
        print_json({**deployment, "left_out": left_out, **({"preview_url": address} if preview else {})})
        return
    if left_out:
        click.echo(f"Left out, because they are hidden or a system's own: {_name_some(left_out)}.", err=True)
    for warning in deployment["warnings"]:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"{address}\n{deployment['id']}")


def build_zip(folder: Path) -> tuple[bytes, list[str]]:
    """Returns a zip of a folder's files, and the paths left out. Raises ClientError for what no site may hold."""
    from baobab.tools.core.errors import BaobabError
    from baobab.tools.sites.archive import MOST_ARCHIVE_BYTES, MOST_BYTES, MOST_FILE_BYTES, MOST_FILES, open_archive
    from baobab.tools.sites.file_paths import is_clutter

    if not folder.is_dir():
        raise ClientError(f"{folder} is no folder. Name the one that your build writes, such as dist/.")
    files, left_out, total = [], [], 0
    for file in list_files(folder):
        path = file.relative_to(folder).as_posix()
        if is_clutter(path):
            left_out.append(path)
            continue
        mode, size = file.lstat().st_mode, file.lstat().st_size
        if not stat.S_ISREG(mode):
            raise ClientError(f"{path} is a link or no file. A site holds files only; replace it by what it leads to.")
        if size > MOST_FILE_BYTES:
            raise ClientError(f"{path} has {size} bytes; a file of a site has at most {MOST_FILE_BYTES}.")
        files.append((path, file))
        total += size
    if not files:
        raise ClientError(f"{folder} has no files that could be pages. Build the site first.")
    if len(files) > MOST_FILES or total > MOST_BYTES:
        raise ClientError(
            f"{folder} has {len(files)} files with {total} bytes; a site has at most {MOST_FILES} with {MOST_BYTES}."
        )
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as archive:
            for path, file in files:
                member = zipfile.ZipInfo(path, _EARLIEST)
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, file.read_bytes())
        open_archive(io.BytesIO(buffer.getvalue()))
    except OSError as exc:
        raise ClientError(f"{exc.filename or folder} cannot be read: {exc.strerror}.") from exc
    except zipfile.LargeZipFile as exc:
        raise ClientError(f"{folder} is too large for a site.") from exc
    except BaobabError as exc:
        raise ClientError(f"{exc.message} {exc.remedy}", exc.code) from exc
    content = buffer.getvalue()
    if len(content) > MOST_ARCHIVE_BYTES:
        raise ClientError(f"As a zip, {folder} has {len(content)} bytes; at most {MOST_ARCHIVE_BYTES} are taken.")
    return content, left_out


def list_files(folder: Path) -> list[Path]:
    """Returns everything below a folder that is no folder, in the order of names. Links are not followed."""
    found_files = []
    for place, folders, names in os.walk(folder):
        linked_folders = [name for name in folders if Path(place, name).is_symlink()]
        found_files += [Path(place, name) for name in (*names, *linked_folders)]
    return sorted(found_files)


def _name_some(paths: list[str]) -> str:
    return ", ".join(paths[:10]) + (f" and {len(paths) - 10} more" if len(paths) > 10 else "")


@sites.command("list")
@app_option
@json_option
def list_deployments(app: str | None, *, as_json: bool) -> None:
    """List the deployments of the app's site, newest first; `*` marks the live one."""
    server = find_server()
    answer = server.call("GET", f"/v1/{find_app(server, app)}/frontend/deployments")
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            "*" if each["live"] else " ",
            each["id"],
            each["created_at"],
            each["status"],
            f"{each['files_count']} files",
            (each["error"] or {}).get("message", ""),
        )
        for each in answer["deployments"]
    ]
    print_table(rows, "The app has no deployments. `baobab sites deploy FOLDER` makes one.")


@sites.command()
@app_option
@click.option(
    "--to", "deployment_id", metavar="ID", help="The deployment; the ready one before the live one, if left out."
)
@json_option
def rollback(app: str | None, deployment_id: str | None, *, as_json: bool) -> None:
    """Make an earlier deployment live, at once. `baobab sites list` shows them; a later one goes forward again."""
    server = find_server()
    base = f"/v1/{find_app(server, app)}/frontend/deployments"
    chosen_id = deployment_id or _find_deployment_before(server, base)
    answer = server.call("POST", f"{base}/{write_segment(chosen_id)}/activate")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['url']}\n{answer['id']}")


def _find_deployment_before(server: Server, base: str) -> str:
    """Returns the id of the ready deployment before the live one. Raises ClientError."""
    deployments: list[Any] = server.call("GET", base)["deployments"]
    live_at = next((at for at, each in enumerate(deployments) if each["live"]), None)
    if live_at is None:
        raise ClientError("No deployment is live. Name one of `baobab sites list` with --to.")
    for each in deployments[live_at + 1 :]:
        if each["status"] == "READY":
            return str(each["id"])
    raise ClientError("There is no ready deployment before the live one.", "DEPLOYMENT_NOT_FOUND")
