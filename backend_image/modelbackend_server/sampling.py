"""How the next token is chosen from the logits, in numpy.

The steps and their order are those of llama.cpp's sampler chain: repetition penalty, top-k, top-p, min-p,
temperature, draw. They run here because a greedy choice costs 4-8 µs in numpy and over 100 µs through the chain,
and because the draw then depends on the request's seed alone and not on who shares the batch.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]

PENALTY_WINDOW_TOKENS = 64
SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Checked values; see `Sampling` in inference.proto for what they mean."""

    repeat_penalty: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    temperature: float = 0.8
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def draw_seed() -> int:
    return secrets.randbits(SEED_BITS)


class Sampler:
    """The choices of one request: its generator and the tokens it has seen last."""

    def __init__(self, parameters: SamplingParameters, prompt: Iterable[int]) -> None:
        self._parameters = parameters
        self._random = np.random.default_rng(parameters.seed)
        self._recent = deque(prompt, maxlen=PENALTY_WINDOW_TOKENS)

    def choose(self, logits: Logits) -> int:
        """The next token, for one row of logits of the vocabulary's length, which is left as it was."""
        if self._parameters.repeat_penalty != 1:
            logits = penalised(logits, np.unique(np.array(self._recent)), self._parameters.repeat_penalty)
        token = int(np.argmax(logits)) if self._parameters.greedy else self._draw(logits)
        self._recent.append(token)
        return token

    def _draw(self, logits: Logits) -> int:
        tokens, probabilities = candidates(logits, self._parameters)
        return int(self._random.choice(tokens, p=probabilities))


def penalised(logits: Logits, tokens: npt.NDArray[np.int64], penalty: float) -> Logits:
    """A copy in which the given tokens are less likely (Keskar et al. 2019, arXiv:1909.05858, section 4.1)."""
    changed = logits.copy()
    seen = changed[tokens]
    changed[tokens] = np.where(seen > 0, seen / penalty, seen * penalty)
    return changed


def candidates(logits: Logits, parameters: SamplingParameters) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The tokens that may be drawn, most likely first, and their probabilities (sum 1). At least one remains."""
    k = parameters.top_k
    kept = np.argpartition(logits, logits.size - k)[-k:] if 0 < k < logits.size else np.arange(logits.size)
    # Stable, with the lower token first, so that equal logits cannot make two runs differ.
    order = np.lexsort((kept, -logits[kept]))
    tokens = kept[order]
    chosen = logits[tokens].astype(np.float64)
    # Top-p and min-p look at the model's own probabilities; the temperature is applied to what they leave.
    likely = softmax(chosen)
    before = np.cumsum(likely) - likely
    keep = (before < parameters.top_p) & (likely >= parameters.min_p * likely[0])
    keep[0] = True
    return tokens[keep], softmax(chosen[keep] / parameters.temperature)


def softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    exponentials = np.exp(values - values.max())
    normalised: npt.NDArray[np.float64] = exponentials / exponentials.sum()
    return normalised
