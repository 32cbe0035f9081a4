#!/bin/sh
# The steps in which the Dockerfiles make /opt/venv, run in /build of a build stage:
#
#   venv.sh dependencies NAME   the packages of requirements/NAME.txt, each checked against its hash
#   venv.sh llama               dist/llama_cpp_python-*.whl, compiled here unless images/wheelhouse has it
#   venv.sh project             this project and whatever wheels lie in dist/
#
# With wheels in images/wheelhouse nothing is fetched; with none, pip uses the package index and apt Debian's packages.
set -eu

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
wheelhouse=images/wheelhouse
tools=/build/tools
packages=/opt/venv/lib/python3*/site-packages # a pattern: leave it unquoted

have_wheel() { ls "$wheelhouse/$1"-*.whl >/dev/null 2>&1; }

debian_packages() { apt-get update && apt-get install --yes --no-install-recommends "$@"; }

dependencies() {
    if have_wheel pip; then
        export PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheelhouse"
        first_pip=$(echo "$wheelhouse"/pip-*.whl)/pip
    else
        python3 -c 'import pip' 2>/dev/null || debian_packages python3-pip
        first_pip=$(python3 -c 'import pip; print(pip.__path__[0])')
    fi
    python3 -m venv --without-pip "$tools"
    python3 "$first_pip" --python "$tools/bin/python" install --require-hashes -r requirements/image-tools.txt
    python3 -m venv --without-pip /opt/venv
    "$tools/bin/pip" --python /opt/venv/bin/python install --no-compile --no-deps --require-hashes -r "requirements/$1.txt"
    shrink_kubernetes_client
    compile_modules $packages
}

# The generated Kubernetes client is more than half of the operator's packages: 118 MB as source, docstrings and
# compiled modules. Compiled modules without docstrings alone are 36 MB, and every one of them stays importable.
shrink_kubernetes_client() {
    for client in $packages/kubernetes; do
        [ -d "$client" ] || continue
        python3 -m compileall -q -j 0 -b -o 2 "$client"
        find "$client" -name '*.py' -delete
    done
}

# The root file system is read-only in production, so nothing can be compiled there. Unchecked hashes: a layer's
# time stamps are not the ones that the compiler saw.
compile_modules() { /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$@"; }

llama() {
    mkdir -p dist
    if have_wheel llama_cpp_python; then
        cp "$wheelhouse"/llama_cpp_python-*.whl dist/
    else
        command -v python3 >/dev/null || debian_packages python3
        cp "$(python3 -m images.wheel --cmake-args="$LLAMA_CMAKE_ARGS")" dist/
    fi
}

project() {
    "$tools/bin/pip" wheel --no-index --no-deps --no-build-isolation --wheel-dir dist .
    "$tools/bin/pip" --python /opt/venv/bin/python install --no-compile --no-index --no-deps dist/*.whl
    compile_modules $(ls -d $packages/modelbackend* $packages/kubectl_mb $packages/llama_cpp 2>/dev/null)
}

"$@"
