# One build, three images: `store` and `agent` carry no torch; `job` adds it for the demo.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels .

FROM python:3.12-slim AS base
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt /wheels/roofwatch-*.whl \
 && useradd --create-home --uid 10001 roofwatch \
 && install -d -o roofwatch -g roofwatch /var/lib/roofwatch /run/roofwatch
USER roofwatch
ENV ROOFWATCH_SOCKET=/run/roofwatch/agent.sock

FROM base AS store
VOLUME /var/lib/roofwatch
EXPOSE 7431
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["roofwatch", "nodes", "--store", "127.0.0.1:7431", "--format", "json"]
CMD ["roofwatch", "store", "serve", "--db", "sqlite:////var/lib/roofwatch/roofwatch.db", "--listen", "0.0.0.0:7431", "--insecure"]

FROM base AS agent
CMD ["roofwatch", "agent", "--store", "store:7431", "--insecure"]

FROM base AS job
USER root
RUN pip install --no-cache-dir torch==2.13.0
USER roofwatch
CMD ["roofwatch", "run", "--model", "demo-encoder", "--", "python", "-m", "roofwatch.cli.demo_jobs.inference"]
