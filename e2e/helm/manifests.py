"""python3 -m e2e.helm.manifests: what is written twice, written from one source.

deploy/ is the chart with its default values, for those who use no Helm. The chart's CRDs are copies of crds/, because
a chart must be whole by itself.
"""

import re
from pathlib import Path

from e2e.helm.chart import CHART, ROOT, render

HELMS_OWN = re.compile(r"^ +(helm\.sh/chart|app\.kubernetes\.io/(instance|version|managed-by)): .*\n", re.MULTILINE)
HEADER = "# From the chart with its default values, by `make manifests`: edit charts/modelbackend-operator instead.\n"
PLAIN = {"10-rbac.yaml": "templates/rbac.yaml", "20-operator.yaml": "templates/operator.yaml"}


def written() -> dict[Path, str]:
    """Every file that comes from another one, and its text."""
    crds = {CHART / "files/crds" / source.name: source.read_text() for source in sorted((ROOT / "crds").glob("*.yaml"))}
    plain = {ROOT / "deploy" / name: HEADER + _plain(template) for name, template in PLAIN.items()}
    return crds | plain


def _plain(template: str) -> str:
    text = render(None, "--show-only", template)
    return re.sub(r"^# Source: .*\n", "", HELMS_OWN.sub("", text), flags=re.MULTILINE).removeprefix("---\n")


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
