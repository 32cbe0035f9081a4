from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Identity(_message.Message):
    __slots__ = ("backend_uid", "model", "pod_uid")
    BACKEND_UID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    backend_uid: str
    model: str
    pod_uid: str
    def __init__(self, backend_uid: _Optional[str] = ..., model: _Optional[str] = ..., pod_uid: _Optional[str] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("description", "architecture", "weights_name", "parameter_count", "size_bytes", "vocabulary_size", "layer_count", "embedding_length", "context_length", "trained_context_length", "has_chat_template", "sha256")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    LAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TRAINED_CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    description: str
    architecture: str
    weights_name: str
    parameter_count: int
    size_bytes: int
    vocabulary_size: int
    layer_count: int
    embedding_length: int
    context_length: int
    trained_context_length: int
    has_chat_template: bool
    sha256: str
    def __init__(self, description: _Optional[str] = ..., architecture: _Optional[str] = ..., weights_name: _Optional[str] = ..., parameter_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., layer_count: _Optional[int] = ..., embedding_length: _Optional[int] = ..., context_length: _Optional[int] = ..., trained_context_length: _Optional[int] = ..., has_chat_template: _Optional[bool] = ..., sha256: _Optional[str] = ...) -> None: ...
