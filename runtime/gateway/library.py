"""LiteLLM, loaded beside everything else, and only where it is needed: that takes seconds of processor time."""

import asyncio
import gc
import os
import sys
import threading
from types import ModuleType

_SET_UP = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    # Honest models repeat themselves, too: a list of numbers, a table.
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",
    # It fetches no pictures: pictures.py does, by our rules.
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}
_lock = threading.Lock()
_loaded: ModuleType | None = None


async def litellm() -> ModuleType:
    """The library, set up so that it calls nobody of its own accord."""
    return _loaded if _loaded is not None else await asyncio.to_thread(_load)


def _load() -> ModuleType:
    global _loaded  # noqa: PLW0603 - one library for each process
    with _lock:
        if _loaded is None:
            for name, value in _SET_UP.items():
                os.environ.setdefault(name, value)
            gc.disable()
            try:
                import litellm
            except BaseException:
                # Else whoever asks next would be given the half of it that was read.
                for name in [name for name in sys.modules if name.partition(".")[0] == "litellm"]:
                    del sys.modules[name]
                raise
            finally:
                gc.enable()
            litellm.disable_hf_tokenizer_download = True
            litellm.telemetry = False
            litellm.suppress_debug_info = True
            litellm.drop_params = False
            # What will stay for ever need not be looked at by each collection. No collection now: it would take a third
            # of a second, and with it every answer.
            gc.freeze()
            _loaded = litellm
    return _loaded
