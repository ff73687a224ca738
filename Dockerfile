# Two images:
#   docker build --target serve -t heedful:serve .    translates over HTTP with the built-in models, without PyTorch
#   docker build --target train -t heedful:train .    everything that `heedful train` needs

FROM python:3.13-slim AS source
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE requirements.lock ./
COPY src src

FROM source AS build-serve
RUN python -m venv /opt/heedful \
    && /opt/heedful/bin/pip install --no-cache-dir --constraint requirements.lock .

FROM source AS build-train
RUN python -m venv /opt/heedful \
    && /opt/heedful/bin/pip install --no-cache-dir --constraint requirements.lock '.[train]'

FROM python:3.13-slim AS train
COPY --from=build-train /opt/heedful /opt/heedful
ENV PATH=/opt/heedful/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home heedful
USER 10001
WORKDIR /data
ENTRYPOINT ["heedful"]

# The last stage, so that `docker build .` makes this one. It writes no files: run it with --read-only.
FROM python:3.13-slim AS serve
COPY --from=build-serve /opt/heedful /opt/heedful
ENV PATH=/opt/heedful/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --uid 10001 --no-create-home heedful
USER 10001
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["heedful", "serve", "--host", "0.0.0.0"]
CMD ["--anyone"]
