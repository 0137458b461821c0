"""Starts, checks and reads jobs for images and videos, in the same way for every provider.

media = Media(catalogue, providers, outgoing)
most = media.get_price(model, request, media.count_units(model, request))
progress = await media.start_job(model, request, job_id)
while progress.handle:
    progress = await media.check_job(model, progress.handle)
async for piece in media.stream_content(model, progress.renderings[0], max_bytes=50 * 2**20): ...
"""

from collections.abc import AsyncGenerator, Sequence

from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import ModelNotFound, RequestRefused, UpstreamMalformed
from baobab.runtime.gateway.media import accepted_fields, built_in, cost
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.media.images import ImageJobs
from baobab.runtime.gateway.media.model import AcceptedFields, MediaRequest, Progress, Rendering
from baobab.runtime.gateway.media.videos import VideoJobs, handle_provider
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.egress import Egress


class Media:
    """Runs jobs for images and videos; each process has one, used on one event loop.

    catalogue: has the models' rates. providers: the providers that can be called. outgoing: the egress client, for
    URLs from callers and upstreams. image_seconds: how long the call that makes an image may take. video_seconds: how
    long a call about a video may take.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        providers: Sequence[Provider],
        outgoing: Egress,
        *,
        image_seconds: float = 300.0,
        video_seconds: float = 60.0,
    ) -> None:
        self._catalogue = catalogue
        self._providers = {provider.name: provider for provider in providers}
        self._files = RemoteFiles(outgoing)
        self._require_open = outgoing.require_open
        self._images = ImageJobs(self._files, image_seconds)
        self._videos = VideoJobs(self._files, video_seconds)

    async def close(self) -> None:
        await self._files.close()

    def accepted_fields(self, model: Model) -> AcceptedFields:
        """Returns the fields that the model takes beside `model` and `prompt`."""
        return accepted_fields.find_accepted_fields(model)

    def count_units(self, model: Model, request: MediaRequest) -> int:
        """Returns the most images or seconds that the request can make. Raises RequestRefused for invalid requests."""
        self._check_fields(model, request)
        if model.provider == built_in.PROVIDER:
            return built_in.count_units(model, request)
        jobs = self._videos if model.modality == "video" else self._images
        return jobs.count_units(model, request)

    def get_price(self, model: Model, request: MediaRequest, units: int) -> int:
        """Returns the most nano-dollars that so many images or seconds can cost, without markup.

        Raises RequestRefused for a size without a known price.
        """
        rates = self._catalogue.get_rates(model)
        if model.modality == "video":
            return units * cost.second_price(model, rates, request.parameters.get("resolution"))
        return cost.max_image_cost(model, rates, request, units)

    async def start_job(self, model: Model, request: MediaRequest, job_id: str) -> Progress:
        """Starts the job. Repeated calls start it once if the upstream supports idempotency keys, such as `job_id`.

        Raises UpstreamFailed or one of its subclasses if the upstream does not accept it, RequestRefused or
        ModelNotFound.
        """
        self._check_fields(model, request)
        if model.provider == built_in.PROVIDER:
            return built_in.start_job(model, request)
        upstream = self._build_upstream(model)
        async with network_wait():
            if model.modality == "video":
                return await self._videos.start_job(upstream, request, job_id)
            rates = self._catalogue.get_rates(model)
            return await self._images.start_job(
                upstream, request, job_id, lambda usage: cost.image_cost(model, rates, usage)
            )

    async def check_job(self, model: Model, handle: str) -> Progress:
        """Returns the job's present state. Raises the errors of `start_job` if it cannot be known at the moment."""
        if model.provider == built_in.PROVIDER:
            return await built_in.check_job(model, handle)
        async with network_wait():
            return await self._videos.check_job(self._build_upstream(model, handle_provider(handle)), handle)

    async def stream_content(self, model: Model, rendering: Rendering, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of a file. Raises UpstreamMalformed for more than `max_bytes`, or for another file type."""
        if isinstance(rendering.source, bytes):
            if len(rendering.source) > max_bytes:
                raise UpstreamMalformed(f"The file has more than {max_bytes} bytes.")
            yield rendering.source
            return
        upstream = self._build_upstream(model, handle_provider(rendering.source))
        async for piece in self._videos.stream_content(upstream, rendering, max_bytes):
            yield piece

    def _check_fields(self, model: Model, request: MediaRequest) -> None:
        """Refuses fields that the model does not take; some, such as `api_base`, would have effects in the library."""
        fields = accepted_fields.find_accepted_fields(model)
        unknown = [name for name in request.parameters if name not in fields.top_level]
        unknown += [f"provider.{name}" for name in request.provider if name not in fields.provider]
        if unknown:
            raise RequestRefused(f"The model does not take {', '.join(unknown)[:200]}.")

    def _build_upstream(self, model: Model, name: str = "") -> Upstream:
        """Builds the upstream for a model. name: the provider, if it is not the model's."""
        self._require_open()
        provider = self._providers.get(name or model.provider)
        if provider is None:
            raise ModelNotFound(f"No provider here serves `{model.id}`.")
        return Upstream(model.id, provider.name, model.upstream_name, provider.api_base, provider.api_key, model)
