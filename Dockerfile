# One build, three images: `store` and `agent` carry no torch; `job` adds it for the demo.
#   docker build --target store -t roofwatch-store .
# Versions of what pip installs are those of constraints.txt, which hadolint cannot see.
ARG PYTHON=3.12.13-slim-trixie

FROM python:${PYTHON} AS build
WORKDIR /src
COPY constraints.txt ./
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --constraint constraints.txt build hatchling
COPY . .
RUN python -m build --no-isolation --wheel --outdir /wheels .

FROM python:${PYTHON} AS base
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt /wheels/roofwatch-*.whl
# A volume that is empty takes owner and mode from the folder it covers.
RUN useradd --create-home --uid 10001 roofwatch \
 && install -d -o roofwatch -g roofwatch /var/lib/roofwatch /run/roofwatch
COPY deploy/image /usr/local/lib/roofwatch
ENV ROOFWATCH_SOCKET=/run/roofwatch/agent.sock \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/roofwatch
ENTRYPOINT ["/usr/local/lib/roofwatch/entrypoint.sh"]

FROM base AS store
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/roofwatch-*.whl)[postgres,clickhouse]"
USER 10001:10001
VOLUME /var/lib/roofwatch
EXPOSE 7431 9431
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python", "-I", "/usr/local/lib/roofwatch/healthy.py", "9431", "roofwatch_store_serving"]
CMD ["roofwatch", "store", "serve", "--db", "sqlite:////var/lib/roofwatch/store.db", "--listen", "0.0.0.0:7431", "--metrics", "0.0.0.0:9431", "--insecure"]

FROM base AS agent
USER 10001:10001
VOLUME /var/lib/roofwatch
EXPOSE 9432
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
  CMD ["python", "-I", "/usr/local/lib/roofwatch/healthy.py", "9432"]
CMD ["roofwatch", "agent", "--store", "store:7431", "--state", "/var/lib/roofwatch", "--metrics", "0.0.0.0:9432", "--insecure"]

FROM base AS job
# The build of torch for CPUs: the usual one brings gigabytes of CUDA that the demo does not need.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# hadolint ignore=DL3013
RUN --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt --index-url "${TORCH_INDEX}" torch
USER 10001:10001
# A job is healthy while it runs, and there is nothing of ours in it to ask.
HEALTHCHECK NONE
CMD ["roofwatch", "run", "--model", "demo-encoder", "--", "python", "-m", "roofwatch.cli.demo_jobs.inference", "--seconds", "31536000"]
