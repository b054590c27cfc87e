"""Embedding providers by name, each with the model that it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import xxhash

from omnigraph.embed.words import terms
from omnigraph.errors import InvalidInput, NotFound


class Embedder(Protocol):
    """Turns texts into vectors. `model` must be the one that the `@embed` annotation of the property names."""

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str], size: int) -> list[list[float]]:
        """Returns one vector of `size` numbers per text."""
        ...


class HashEmbedder:
    """Places texts that share terms near each other; deterministic, without a model. For tests and demos."""

    model = "hash"

    def embed(self, texts: Sequence[str], size: int) -> list[list[float]]:
        return [self._embed_text(text, size) for text in texts]

    def _embed_text(self, text: str, size: int) -> list[float]:
        vector = [0.0] * size
        for word in terms(text) or [text]:
            digest = xxhash.xxh3_64_intdigest(word.encode())
            vector[digest % size] += 1.0 if digest >> 63 else -1.0
        length = math.sqrt(sum(number * number for number in vector))
        if length == 0:
            vector[xxhash.xxh3_64_intdigest(text.encode()) % size] = 1.0
            return vector
        return [number / length for number in vector]


_PROVIDERS: dict[str, Callable[[], Embedder]] = {"hash": HashEmbedder}


def register_embedder(name: str, make: Callable[[], Embedder]) -> None:
    """Registers a provider under the name that `Config.embedding` uses; `make` is called for every query."""
    _PROVIDERS[name] = make


def get_embedder(name: str) -> Embedder:
    """Returns the provider of this name. Raises NotFound if there is none."""
    if name not in _PROVIDERS:
        raise NotFound(
            f"there is no embedding provider {name!r}",
            code="embedding_provider_not_found",
            advice=f"Known are {', '.join(sorted(_PROVIDERS))}",
        )
    return _PROVIDERS[name]()


def embed_query_text(text: str, size: int, model: str | None, provider: Embedder | None) -> list[float]:
    """Returns the vector of a query text. Raises InvalidInput if the provider's model or vector size is another one."""
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
    vector = provider.embed([text], size)[0]
    if len(vector) != size or not all(math.isfinite(number) for number in vector):
        raise InvalidInput(
            f"the embedding provider gave {len(vector)} numbers, the property holds Vector({size})",
            code="embedding_size_mismatch",
            advice="Configure a provider whose vectors have that size",
        )
    return vector
