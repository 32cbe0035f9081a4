"""python3 -m e2e.helm: build the programs and print their folder."""

import sys

from e2e.helm.programs import build
from images.steps import StepError

try:
    print(build())
except StepError as failure:
    sys.exit(f"\n{failure}")
