"""Who answers on a port that is about to be released on somebody's word: the counter-evidence.

Only a server that tells exactly that pod's identity contradicts the word. No answer, a refusal and a stranger prove
nothing, so nothing is ever released because of what was heard here.
"""

import asyncio
from collections.abc import Iterable

import grpc

from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend_operator.drain_client import CHANNEL_OPTIONS
from modelbackend_operator.evidence import Suspect


async def still_answering(backend_uid: str, suspects: Iterable[Suspect], *, timeout_seconds: float) -> frozenset[str]:
    """Uids of those pods of this backend whose server answered; all are asked at once, each for so long."""
    asked = [(suspect.pod_uid, address) for suspect in suspects for address in suspect.addresses]
    answers = await asyncio.gather(*(_pod_behind(backend_uid, address, timeout_seconds) for _, address in asked))
    return frozenset(pod_uid for (pod_uid, _), answer in zip(asked, answers, strict=True) if answer == pod_uid)


async def _pod_behind(backend_uid: str, address: str, timeout_seconds: float) -> str:
    """The uid of the pod of this backend that answers there; empty when none says so."""
    metadata = (("x-modelbackend-uid", backend_uid),)
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
        ):
            stub = inference_pb2_grpc.InferenceStub(channel)
            answer = await stub.GetModelInfo(
                inference_pb2.GetModelInfoRequest(), metadata=metadata, timeout=timeout_seconds
            )
    except (grpc.aio.AioRpcError, TimeoutError, OSError):
        return ""
    return answer.identity.pod_uid if answer.identity.backend_uid == backend_uid else ""
