"""Imports LiteLLM in the background and only if it is needed, because that takes seconds of processor time."""

import logging
import os
from types import ModuleType

from baobab.runtime.late_import import LateImport

_SET_UP = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    # Proper answers repeat themselves, too: a list of numbers, a table.
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",
    # LiteLLM must not fetch pictures: pictures.py does, under the egress rules.
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}


async def load_litellm() -> ModuleType:
    """Returns the library, set up so that it makes no network calls of its own."""
    return await _library.get()


def _import_litellm() -> ModuleType:
    for name, value in _SET_UP.items():
        os.environ.setdefault(name, value)
    import litellm

    # Its errors are raised and translated, and its log is only about callbacks that are not used here.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    litellm.disable_hf_tokenizer_download = True
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    return litellm


_library = LateImport(_import_litellm, packages=("litellm",))
