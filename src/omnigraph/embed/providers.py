"""Embedding of texts for `nearest($v.p, "text")`: providers by name, each with the model it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import xxhash

from omnigraph.embed.words import terms
from omnigraph.errors import InvalidInput, NotFound


class Embedder(Protocol):
    """Turns texts into vectors. `model` is compared with what `@embed` records."""

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str], size: int) -> list[list[float]]:
        """One vector of `size` numbers per text."""
        ...


class HashEmbedder:
    """Deterministic and without meaning: texts that share terms are near each other. For tests and demos."""

    model = "hash"

    def embed(self, texts: Sequence[str], size: int) -> list[list[float]]:
        return [self._one(text, size) for text in texts]

    def _one(self, text: str, size: int) -> list[float]:
        vector = [0.0] * size
        for word in terms(text) or [text]:
            digest = xxhash.xxh3_64_intdigest(word.encode())
            vector[digest % size] += 1.0 if digest >> 63 else -1.0
        length = math.sqrt(sum(one * one for one in vector))
        if length == 0:
            vector[xxhash.xxh3_64_intdigest(text.encode()) % size] = 1.0
            return vector
        return [one / length for one in vector]


_PROVIDERS: dict[str, Callable[[], Embedder]] = {"hash": HashEmbedder}


def register_embedder(name: str, make: Callable[[], Embedder]) -> None:
    """Make a provider known under a name; it is made when a query first needs it."""
    _PROVIDERS[name] = make


def get_embedder(name: str) -> Embedder:
    """The provider of this name."""
    if name not in _PROVIDERS:
        raise NotFound(
            f"there is no embedding provider {name!r}",
            code="embedding_provider_not_found",
            advice=f"Known are {', '.join(sorted(_PROVIDERS))}",
        )
    return _PROVIDERS[name]()


def embed_query_text(text: str, size: int, model: str | None, provider: Embedder | None) -> list[float]:
    """The vector of a query text, by a provider whose model is the one that made the stored vectors."""
    if provider is None:
        raise InvalidInput(
            "the query embeds a text, and no embedding provider is configured",
            code="no_embedding_provider",
            advice="Configure one, or pass the vector itself",
        )
    if model is not None and provider.model != model:
        raise InvalidInput(
            f"the vectors were made by model {model!r}, the embedding provider runs {provider.model!r}",
            code="embedding_model_mismatch",
            advice=f"Configure a provider that runs {model!r}",
            expected=model,
            actual=provider.model,
        )
    made = provider.embed([text], size)[0]
    if len(made) != size or not all(math.isfinite(one) for one in made):
        raise InvalidInput(
            f"the embedding provider gave {len(made)} numbers, the property holds Vector({size})",
            code="embedding_size_mismatch",
            advice="Configure a provider whose vectors have that size",
        )
    return made
