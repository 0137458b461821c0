"""The errors of templates and clones, and the envelope of their toolset."""

from typing import Any

from baobab.tools.core import BadRequest, BaobabError, NotFound
from baobab.tools.core.envelopes import Structured
from baobab.tools.core.errors import AlreadyExists


class TemplateNotFound(NotFound):
    code = "TEMPLATE_NOT_FOUND"
    summary = "There is no such template."
    remediation = "Search for one with op:templates_list."


class CloneJobNotFound(NotFound):
    summary = "There is no such clone job of yours."
    remediation = "Use the `job_id` that op:templates_clone answered."


class CloneNotFailed(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "The clone has not failed, so it cannot be tried again."
    remediation = "Read its `status` with op:clone_jobs_get."


class TooManyClones(BaobabError):
    code = "CLONE_LIMIT_INFLIGHT"
    status = 429
    summary = "As many clones of yours are being made as may be made at once."
    remediation = "Wait until one has ended (op:clone_jobs_get), then clone again."


class NoSnapshot(BadRequest):
    summary = "The template has no snapshot in its repository, so it cannot be cloned."
    remediation = "Choose another template, or ask its owner to push one (op:repo_prepare)."


class UnknownFunction(BadRequest):
    summary = "The template has no such function."
    remediation = "Name functions and keys that op:templates_preflight lists."


class CloneNameTaken(AlreadyExists):
    summary = "The organisation already has an app with this name."
    remediation = "Choose another name, or leave it out: a free one is then derived from the template's."


class CloneRegionUnknown(BadRequest):
    summary = "There is no such region."
    remediation = "Use one of the regions that op:system_regions lists, or leave it out."


class TemplatesEnvelope(Structured):
    """The platform's own shape. Of a template that is not there it says the code only, in the same words for each."""

    name = "TemplateError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        if isinstance(error, TemplateNotFound):
            return {"error": {"code": self.code(type(error))}}
        return super().render(error, docs)

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        inner = {**schema["properties"]["error"], "required": ["code"]}
        return {**schema, "properties": {"error": inner}}


ENVELOPE = TemplatesEnvelope()
