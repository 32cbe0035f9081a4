"""How the next token is chosen from the logits, in numpy.

The steps and their order are those of llama.cpp's sampler chain: logit bias, penalties, top-k, typical, top-p,
min-p, temperature, draw. They run here because a greedy choice costs 4-8 µs in numpy and over 100 µs through the
chain, and because the draw then depends on the request's seed and logits alone, not on who shares the batch.

The logits themselves may differ in their last bits with the shape of the batch, because llama.cpp takes other kernels
for other shapes: two texts with one seed differ where such a bit turns a choice, and nowhere else.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]

PENALTY_WINDOW_TOKENS = 64
SEED_BITS = 64
BLOCK_TOKENS = 64
LOGIT_MAX = np.float32(1e30)
WIDTHS = (64, 1024)
"""So many of the most likely tokens are tried, one after the other, where a grammar forbids the chosen one."""


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Checked values; see `Sampling` in inference.proto for what they mean."""

    repeat_penalty: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    temperature: float = 0.8
    seed: int = 0
    # Fewest tokens that are about as surprising as a token is on average, with this mass; 1 keeps all
    # (Meister et al. 2022, arXiv:2202.00666).
    typical_p: float = 1.0
    # Taken off the logit of each token that is among the last ones: once, and once for each time.
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # Added to the logits of these tokens, before everything else.
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def changes_logits(self) -> bool:
        return bool(
            self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0 or self.logit_bias
        )


class Constraint(Protocol):
    """What a grammar is to a sampler."""

    def allows(self, tokens: TokenIds) -> npt.NDArray[np.bool_]: ...
    def accept(self, token: int) -> None: ...


class ConstraintError(Exception):
    """The text cannot go on within its constraint; in words."""


class NothingAllowedError(ConstraintError):
    """The grammar allows none of the vocabulary's tokens, nor the end."""


class TooCostlyError(ConstraintError):
    """To hold a text against the grammar takes too long."""


def draw_seed() -> int:
    return secrets.randbits(SEED_BITS)


class Sampler:
    """The choices of one request: its generator, the tokens it has seen last, and its grammar.

    `enders` are the tokens that end a text.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        prompt: Iterable[int],
        constraint: Constraint | None = None,
        enders: Iterable[int] = (),
    ) -> None:
        self._parameters = parameters
        self._random = np.random.default_rng(parameters.seed)
        self._recent = deque(prompt, maxlen=PENALTY_WINDOW_TOKENS)
        self._constraint = constraint
        self._enders = frozenset(enders)
        self.takes_the_most_likely = parameters.greedy and not parameters.changes_logits

    def choose(self, logits: Logits, most_likely: int | None = None) -> int:
        """The next token, for one row of logits of the vocabulary's length, which is left as it was.

        `most_likely` is its argmax, where that is known. Raises ConstraintError.
        """
        if self.takes_the_most_likely and most_likely is not None:
            token = most_likely
        else:
            logits = self._adjusted(logits)
            token = self._pick(logits)
        if self._constraint is not None and not self._constraint.allows(np.array([token]))[0]:
            token = self._allowed(logits, self._constraint)
        self._remember(token)
        return token

    def _pick(self, logits: Logits) -> int:
        return int(np.argmax(logits)) if self._parameters.greedy else self._draw(logits)

    def _draw(self, logits: Logits) -> int:
        tokens, probabilities = candidates(logits, self._parameters)
        cumulative = np.cumsum(probabilities)
        index = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(tokens[min(int(index), len(tokens) - 1)])

    def _allowed(self, logits: Logits, constraint: Constraint) -> int:
        """The same choice among those of the most likely tokens that the grammar allows."""
        for width in (*(width for width in WIDTHS if width < logits.size), logits.size):
            tokens = np.unique(np.concatenate((most_likely_tokens(logits, width), np.array([*self._enders], np.int64))))
            allowed = tokens[constraint.allows(tokens)]
            if allowed.size:
                return int(allowed[self._pick(logits[allowed])])
        raise NothingAllowedError("the grammar allows no token of this vocabulary")

    def _remember(self, token: int) -> None:
        self._recent.append(token)
        if self._constraint is not None and token not in self._enders:
            self._constraint.accept(token)

    def _adjusted(self, logits: Logits) -> Logits:
        parameters = self._parameters
        if not parameters.changes_logits:
            return logits
        logits = logits.copy()
        for token, bias in parameters.logit_bias:
            logits[token] += bias
        tokens, times = np.unique(np.array(self._recent, np.int64), return_counts=True)
        if parameters.repeat_penalty != 1:
            logits = penalised(logits, tokens, parameters.repeat_penalty)
        logits[tokens] -= (parameters.presence_penalty + parameters.frequency_penalty * times).astype(np.float32)
        return logits


def penalised(logits: Logits, tokens: npt.NDArray[np.int64], penalty: float) -> Logits:
    """A copy in which the given tokens are less likely (Keskar et al. 2019, arXiv:1909.05858, section 4.1)."""
    changed = logits.copy()
    seen = changed[tokens]
    # A penalty near 0 makes more of a logit than a float32 holds, and of two infinities nothing can be told apart.
    with np.errstate(over="ignore"):
        changed[tokens] = np.clip(np.where(seen > 0, seen / penalty, seen * penalty), -LOGIT_MAX, LOGIT_MAX)
    return changed


def most_likely_tokens(logits: Logits, count: int) -> TokenIds:
    """The `count` tokens with the highest logits, in no order.

    Only the blocks with the highest maxima can hold them: 4 times faster than a partition of a whole vocabulary.
    """
    size = logits.size
    if not 0 < count < size:
        return np.arange(size)
    blocks = size // BLOCK_TOKENS
    if blocks <= 2 * count:
        return np.argpartition(logits, size - count)[size - count :]
    whole = blocks * BLOCK_TOKENS
    maxima = logits[:whole].reshape(blocks, BLOCK_TOKENS).max(axis=1)
    chosen = np.argpartition(maxima, blocks - count)[blocks - count :]
    tokens = (chosen[:, None] * BLOCK_TOKENS + np.arange(BLOCK_TOKENS)).ravel()
    tokens = np.concatenate((tokens, np.arange(whole, size)))
    return tokens[np.argpartition(logits[tokens], tokens.size - count)[tokens.size - count :]]


def candidates(logits: Logits, parameters: SamplingParameters) -> tuple[TokenIds, npt.NDArray[np.float64]]:
    """The tokens that may be drawn, and their probabilities (sum 1). At least one remains.

    Most likely first, where a step needs them sorted; by token otherwise.
    """
    nothing_sorts = parameters.top_p >= 1 and parameters.typical_p >= 1
    if not 0 < parameters.top_k < logits.size and nothing_sorts:
        tokens = np.arange(logits.size)
        if parameters.min_p > 0:
            tokens = np.flatnonzero(logits >= logits.max() + np.float32(np.log(parameters.min_p)))
        return tokens, softmax(logits[tokens].astype(np.float64) / parameters.temperature)
    kept = most_likely_tokens(logits, parameters.top_k)
    # With the lower token first, so that equal logits cannot make two runs differ.
    tokens = kept[np.lexsort((kept, -logits[kept]))]
    chosen = logits[tokens].astype(np.float64)
    # Typical, top-p and min-p look at the model's own probabilities; the temperature is applied to what they leave.
    if parameters.typical_p < 1:
        typical = _typical(softmax(chosen), parameters.typical_p)
        tokens, chosen = tokens[typical], chosen[typical]
    likely = softmax(chosen)
    before = np.cumsum(likely) - likely
    keep = (before < parameters.top_p) & (likely >= parameters.min_p * likely[0])
    keep[0] = True
    return tokens[keep], softmax(chosen[keep] / parameters.temperature)


def _typical(likely: npt.NDArray[np.float64], mass: float) -> npt.NDArray[np.bool_]:
    surprise = -np.log(np.maximum(likely, np.finfo(np.float64).tiny))
    order = np.argsort(np.abs(surprise - (likely * surprise).sum()), kind="stable")
    ordered = likely[order]
    keep = np.zeros(likely.size, np.bool_)
    keep[order[np.cumsum(ordered) - ordered < mass]] = True
    return keep


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities under the model's own distribution, before any sampling step."""

    token: float
    # The most likely tokens, most likely first.
    top: tuple[tuple[int, float], ...]


def logprobs(logits: Logits, token: int, top: int) -> Logprobs:
    total = log_sum(logits)
    best = most_likely_tokens(logits, top) if top else np.empty(0, np.int64)
    best = best[np.lexsort((best, -logits[best]))]
    return Logprobs(float(logits[token]) - total, tuple((int(index), float(logits[index]) - total) for index in best))


def token_logprobs(logits: Logits, tokens: Sequence[int]) -> list[float]:
    """The log-probability of tokens[i] under row i."""
    return [float(row[token]) - log_sum(row) for row, token in zip(logits, tokens, strict=True)]


def log_sum(row: Logits) -> float:
    highest = row.max()
    return float(highest) + float(np.log(np.exp(row - highest).sum(dtype=np.float64)))


def softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    exponentials = np.exp(values - values.max())
    normalised: npt.NDArray[np.float64] = exponentials / exponentials.sum()
    return normalised
