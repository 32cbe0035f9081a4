"""Run by `python3 -m tests.frameworks`, in an environment of its own: use.py GENERATING_URL EMBEDDING_URL."""

import sys
from typing import Literal

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

generating, embedding = sys.argv[1:]
LIMIT = 200


class Order(BaseModel):
    """Orders one."""

    size: Literal["s", "l"]


chat = ChatOpenAI(base_url=generating, api_key="none", model="tiny", temperature=0, max_tokens=LIMIT, max_retries=0)
whole = chat.invoke("one of the new")
streamed = list(chat.stream("one of the new"))
assert "".join(chunk.content for chunk in streamed) == whole.content
assert whole.usage_metadata["output_tokens"] == LIMIT
print("LangChain: a chat, whole and streamed:", repr(whole.content[:30]))

called = chat.bind_tools([Order], tool_choice="Order").invoke("one of the new").tool_calls
assert called[0]["name"] == "Order"
assert called[0]["args"]["size"] in ("s", "l")
print("LangChain: a tool called:", called[0]["args"])

ordered = chat.with_structured_output(Order, method="json_schema").invoke("one of the new")
assert ordered.size in ("s", "l")
print("LangChain: a structured answer:", ordered)

vectors = OpenAIEmbeddings(
    base_url=embedding, api_key="none", model="embedding", check_embedding_ctx_length=False
).embed_documents(["a", "b", "a"])
same, other = (max(abs(a - b) for a, b in zip(vectors[0], vector, strict=True)) for vector in vectors[:0:-1])
assert same < 1e-4 < other
print("LangChain: vectors of", len(vectors[0]))

llm = OpenAILike(model="tiny", api_base=generating, api_key="none", is_chat_model=True, max_tokens=LIMIT, temperature=0)
message = [ChatMessage(role="user", content="one of the new")]
assert llm.chat(message).message.content == whole.content
assert "".join(part.delta for part in llm.stream_chat(message)) == whole.content
plain = OpenAILike(model="tiny", api_base=generating, api_key="none", is_chat_model=False, max_tokens=9, temperature=0)
assert plain.complete("the").text
print("LlamaIndex: the same chat, whole and streamed; a plain completion")

theirs = OpenAILikeEmbedding(model_name="embedding", api_base=embedding, api_key="none")
assert len(theirs.get_text_embedding("a")) == len(vectors[0])
print("LlamaIndex: vectors")
