"""/v1/{app_id}/frontend/deployments/files: a small site in one call."""

from baobab.storage.objects.errors import StoreUnavailable
from baobab.tools.core import AppId, AppOwner, Audit, BaobabError, Call, Rest
from baobab.tools.sites.building import BUILDING, ERROR, SiteSource, build, end, find_deployment, find_live_id
from baobab.tools.sites.errors import DeploymentNotFound, SiteInvalid, SiteStoreFailed, TooManyDeployments
from baobab.tools.sites.file_paths import check_path, require_distinct
from baobab.tools.sites.schemas import MOST_TEXT_BYTES, Deployment, Framework, SiteTexts
from baobab.tools.sites.tables import FREEZES
from baobab.tools.sites.tools.deployments import PUBLISHES, describe, insert_deployment
from baobab.tools.sites.toolset import sites


@sites.tool(
    "POST /deployments/files",
    access=AppOwner("admin"),
    effect="write",
    raises=(SiteInvalid, TooManyDeployments, SiteStoreFailed, DeploymentNotFound),
    audit=Audit("site.deploy", category="app", action="create", resource="deployment"),
    rest=Rest(status=201, max_body=4 * 2**20, examples={"files": {"index.html": "<h1>Hello</h1>"}}),
    guard=PUBLISHES,
)
async def sites_deploy_files(
    call: Call, app_id: AppId, files: SiteTexts, framework: Framework = "static"
) -> Deployment:
    """Deploy a small site in one call: up to 200 files of text with 1 MiB together. It is live at `url` at once.

    The files are the whole site: those of the deployment before are not taken over. For pictures, or more, send a zip
    with op:sites_create.
    """
    paths = [check_path(path) for path in files]
    require_distinct(paths)
    texts = {path: text.encode() for path, text in zip(paths, files.values(), strict=True)}
    total = sum(map(len, texts.values()))
    if total > MOST_TEXT_BYTES:
        raise SiteInvalid(
            f"The files have {total} bytes; in one call they may have {MOST_TEXT_BYTES}.",
            remediation="Send a zip with op:sites_create.",
        )
    deployment_id, app = call.services.ids.uuid_at(call.now), call.require_app()
    # In transactions of its own: contents are stored between them, while nobody waits for the app's lock.
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        await insert_deployment(call, unit, deployment_id, framework, BUILDING)
    try:
        await build(call.services, app, call.stores, deployment_id, SiteSource(list(texts), texts.__getitem__))
    except StoreUnavailable as exc:
        await _fail(call, deployment_id, SiteStoreFailed())
        raise SiteStoreFailed from exc
    except BaobabError as error:
        await _fail(call, deployment_id, error)
        raise
    call.audit.resource_id = deployment_id
    async with call.reading() as execute:
        row = await find_deployment(execute, app_id, deployment_id)
        live_id = await find_live_id(execute, app_id)
    if row is None:
        raise DeploymentNotFound("The deployment was deleted while it was published.")
    return describe(call, row, live_id)


async def _fail(call: Call, deployment_id: str, error: BaobabError) -> None:
    """Records why a deployment failed. While the app is being moved nothing is recorded; the sweep ends it later."""
    app = call.require_app()
    async with call.stores.database.writing_unit(lock=app.id) as unit:
        if not await FREEZES.is_frozen(unit.execute, app.id):
            problem = {"code": error.code, "message": error.message}
            await end(unit, call.services, app, deployment_id, status=ERROR, error=problem)
