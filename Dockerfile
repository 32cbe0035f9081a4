# The operator's image. From the repository's root, with docker or buildah:  docker build -t modelbackend-operator .
#
# BASE_IMAGE: a Debian or Ubuntu. `python3 -m images build` passes one made from Debian's packages, and the wheels
# (images/wheelhouse), so that neither a registry nor a package index is needed.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /build
COPY images/venv.sh images/
COPY images/wheelhouse/ images/wheelhouse/
COPY requirements/image-tools.txt requirements/operator.txt requirements/
RUN images/venv.sh dependencies operator
COPY pyproject.toml README.md LICENSE ./
COPY operator/ operator/
COPY backend_image/ backend_image/
RUN images/venv.sh project

FROM ${BASE_IMAGE}
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
ARG VERSION=dev
LABEL org.opencontainers.image.title="modelbackend-operator" \
      org.opencontainers.image.description="Kubernetes operator for llama.cpp model backends" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
USER 65532:65532
ENTRYPOINT ["/opt/venv/bin/modelbackend-operator"]
CMD ["run"]
