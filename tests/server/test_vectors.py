"""Vectors and rankings, over gRPC and over HTTP. The model is not trained: that vectors are owned rightly is tested."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import grpc
import openai
import pytest

from modelbackend.v1 import inference_pb2
from modelbackend_client.errors import from_rpc
from tests.server.harness import Running, running
from tests.server.tiny_gguf import write_embedding_gguf

TEXTS = ["a", "bb", "a b c", "d", "zzz", "a"]


@pytest.fixture
def embedder(tmp_path: Path) -> Path:
    path = tmp_path / "embedder.gguf"
    write_embedding_gguf(path)
    return path


async def embed(server: Running, texts: Sequence[str], *, normalize: bool | None = None) -> list[list[float]]:
    request = inference_pb2.EmbedRequest(inputs=texts, normalize=normalize)
    answer = await server.stub.Embed(request)
    assert len(answer.embeddings) == len(texts)
    return [list(embedding.values) for embedding in answer.embeddings]


async def test_vectors_come_in_the_order_of_their_texts_whoever_else_asks(embedder: Path) -> None:
    async with running(embedder, mode="embed") as server:
        alone = [(await embed(server, [text]))[0] for text in TEXTS]
        together, turned = await asyncio.gather(embed(server, TEXTS), embed(server, TEXTS[::-1]))
        assert [pytest.approx(vector, abs=1e-4) for vector in alone] == together
        assert [pytest.approx(vector, abs=1e-4) for vector in alone[::-1]] == turned
        info = await server.client.model_info()
    assert all(len(vector) == info.model.embedding_length for vector in together)
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-4) for vector in together)


async def test_vectors_are_left_as_they_are_where_that_is_asked(embedder: Path) -> None:
    async with running(embedder, mode="embed") as server:
        (raw,) = await embed(server, ["a b c"], normalize=False)
        (unit,) = await embed(server, ["a b c"], normalize=True)
    length = math.hypot(*raw)
    assert not math.isclose(length, 1, rel_tol=1e-2)
    assert [value / length for value in raw] == pytest.approx(unit, abs=1e-4)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "0 inputs, 1 to 3"),
        (["a"] * 4, "4 inputs"),
        (["a", ""], r"inputs\[1\] is empty"),
        (["a " * 99], "at most 64"),
    ],
)
async def test_texts_that_cannot_be_embedded_are_named(embedder: Path, texts: Sequence[str], words: str) -> None:
    async with running(embedder, mode="embed", max_batch_inputs=3) as server:
        with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
            await embed(server, texts)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await embed(server, ["a"])


async def test_an_embedding_model_generates_and_ranks_nothing(embedder: Path) -> None:
    async with running(embedder, mode="embed") as server:
        for call in (
            server.stub.Generate(inference_pb2.GenerateRequest(prompt="a")),
            server.stub.ScoreChoices(inference_pb2.ScoreChoicesRequest(prompt="a", choices=["b"])),
            server.stub.Rerank(inference_pb2.RerankRequest(query="a", documents=["b"])),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert from_rpc(refused.value).reason == "MODEL_CANNOT"


async def test_the_official_client_reads_the_vectors(embedder: Path) -> None:
    async with running(embedder, mode="embed", model="e") as server, server.openai() as client:
        expected = await embed(server, ["a", "bb"])
        answer = await client.embeddings.create(model="e", input=["a", "bb"])
        assert [item.index for item in answer.data] == [0, 1]
        assert [item.embedding for item in answer.data] == [pytest.approx(vector, abs=1e-6) for vector in expected]
        floats = await client.embeddings.create(model="e", input="a", encoding_format="float")
        assert floats.data[0].embedding == pytest.approx(expected[0], abs=1e-6)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
        with pytest.raises(openai.BadRequestError, match=r"inputs\[1\] is empty") as refused:
            await client.embeddings.create(model="e", input=["a", ""])
        assert refused.value.param == "input[1]"
        with pytest.raises(openai.BadRequestError, match="generates none") as cannot:
            await client.chat.completions.create(model="e", messages=[{"role": "user", "content": "a"}])
        assert cannot.value.code == "model_cannot"


async def test_documents_are_ranked_by_a_model_that_ranks(embedder: Path) -> None:
    async with running(embedder, mode="embed", pooling="rank") as server:
        request = inference_pb2.RerankRequest(query="a", documents=["b", "a", "c c c"], top_n=2)
        answer = await server.stub.Rerank(request)
        assert len(answer.documents) == 2
        assert answer.documents[0].score >= answer.documents[1].score
        with pytest.raises(grpc.aio.AioRpcError, match="makes no vectors"):
            await embed(server, ["a"])
