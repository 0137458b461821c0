"""LiteLLM, imported beside everything else, and only where it is needed: that takes seconds of processor time."""

import logging
import os
from types import ModuleType

from baobab.runtime.late_import import LateImport

_SET_UP = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    # Honest models repeat themselves, too: a list of numbers, a table.
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",
    # It fetches no pictures: pictures.py does, by our rules.
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}


async def load_litellm() -> ModuleType:
    """The library, set up so that it calls nobody of its own accord."""
    return await _library.get()


def _import_litellm() -> ModuleType:
    for name, value in _SET_UP.items():
        os.environ.setdefault(name, value)
    import litellm

    # What goes wrong is raised, and said in our words. It logs what it could not count for callbacks that nobody has.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    litellm.disable_hf_tokenizer_download = True
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    return litellm


_library = LateImport(_import_litellm, packages=("litellm",))
