"""python3 -m e2e.helm [--helm4]: build the programs and print their folder."""

import sys

from e2e.helm.programs import HELM_4, TOOLS, build
from images.steps import StepError

try:
    print(build(HELM_4 if sys.argv[1:] == ["--helm4"] else TOOLS))
except StepError as failure:
    sys.exit(f"\n{failure}")
