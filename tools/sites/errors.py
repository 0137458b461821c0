"""The errors of sites."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, NotFound


class DeploymentNotFound(NotFound):
    summary = "The app has no such deployment."
    remediation = "List the deployments with op:sites_list; the oldest are removed when the plan keeps no more."


class SiteNotFound(NotFound):
    summary = "This app has no site."
    remediation = "Deploy one with op:sites_deploy_files, or upload a zip with op:sites_create."


class DeploymentNotWaiting(Conflict):
    code = "STATE_INVALID_TRANSITION"
    summary = "The deployment is not in a state in which it can do this."
    remediation = "Read its `status` with op:sites_get; create another deployment with op:sites_create."


class ZipMissing(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "The zip of the deployment has not arrived."
    remediation = "Send it to the `uploadUrl` of op:sites_create, then start again."


class ZipTooLarge(BaobabError):
    code = "QUOTA_FILE_SIZE_EXCEEDED"
    status = 413
    summary = "The zip is larger than a deployment may be."
    remediation = "Leave out what the pages do not need, such as source maps and videos; the limit is in details."


class TooManyDeployments(BaobabError):
    code = "QUOTA_DEPLOYMENT_LIMIT"
    status = 402
    summary = "Too many deployments of the app have begun and not ended."
    remediation = "Start those that wait with op:sites_start, or cancel them with op:sites_cancel."


class SiteInvalid(BadRequest):
    summary = "These files cannot be deployed."
    remediation = "Correct what the message names, and deploy again. What was live stays live."


class VariablesInvalid(BadRequest):
    summary = "The variables are not valid."
    remediation = "Send an object of up to 100 names such as `API_URL`, each with a text of up to 8192 bytes."


class SiteStoreFailed(BaobabError):
    code = "S3_ERROR"
    status = 502
    summary = "The object store does not answer."
    remediation = "Try again in a few seconds."


class SiteRangeNotSatisfiable(BaobabError):
    code = "VALIDATION_RANGE"
    status = 416
    summary = "The range begins behind the end of the file."
    remediation = "Ask for a range within `size_bytes`."
