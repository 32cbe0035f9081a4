from modelbackend.v1 import model_info_pb2 as _model_info_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_LOADING: _ClassVar[State]
    STATE_SERVING: _ClassVar[State]
    STATE_DRAINING: _ClassVar[State]
    STATE_STOPPED: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]
STATE_UNSPECIFIED: State
STATE_LOADING: State
STATE_SERVING: State
STATE_DRAINING: State
STATE_STOPPED: State
STATE_FAILED: State

class Status(_message.Message):
    __slots__ = ("identity", "state", "message", "load_progress", "queued", "active", "oldest_request_age_seconds", "slots", "drain_remaining_seconds", "cpu_library", "llama_cpp_build", "model", "requests", "uptime_seconds")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOAD_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_REQUEST_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_REMAINING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_LIBRARY_FIELD_NUMBER: _ClassVar[int]
    LLAMA_CPP_BUILD_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    identity: _model_info_pb2.Identity
    state: State
    message: str
    load_progress: float
    queued: int
    active: int
    oldest_request_age_seconds: float
    slots: int
    drain_remaining_seconds: float
    cpu_library: str
    llama_cpp_build: str
    model: _model_info_pb2.ModelInfo
    requests: RequestCounters
    uptime_seconds: float
    def __init__(self, identity: _Optional[_Union[_model_info_pb2.Identity, _Mapping]] = ..., state: _Optional[_Union[State, str]] = ..., message: _Optional[str] = ..., load_progress: _Optional[float] = ..., queued: _Optional[int] = ..., active: _Optional[int] = ..., oldest_request_age_seconds: _Optional[float] = ..., slots: _Optional[int] = ..., drain_remaining_seconds: _Optional[float] = ..., cpu_library: _Optional[str] = ..., llama_cpp_build: _Optional[str] = ..., model: _Optional[_Union[_model_info_pb2.ModelInfo, _Mapping]] = ..., requests: _Optional[_Union[RequestCounters, _Mapping]] = ..., uptime_seconds: _Optional[float] = ...) -> None: ...

class RequestCounters(_message.Message):
    __slots__ = ("accepted", "started", "finished", "cancelled", "failed", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    started: int
    finished: int
    cancelled: int
    failed: int
    refused: int
    def __init__(self, accepted: _Optional[int] = ..., started: _Optional[int] = ..., finished: _Optional[int] = ..., cancelled: _Optional[int] = ..., failed: _Optional[int] = ..., refused: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("deadline_seconds",)
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    deadline_seconds: float
    def __init__(self, deadline_seconds: _Optional[float] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...
