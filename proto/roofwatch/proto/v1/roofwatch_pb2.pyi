from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AckStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_STATUS_UNSPECIFIED: _ClassVar[AckStatus]
    STORED: _ClassVar[AckStatus]
    DUPLICATE: _ClassVar[AckStatus]
    REJECTED: _ClassVar[AckStatus]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    ASKED: _ClassVar[Outcome]
    TAKEN: _ClassVar[Outcome]
    REFUSED: _ClassVar[Outcome]
    TIMED_OUT: _ClassVar[Outcome]
    LOST: _ClassVar[Outcome]
ACK_STATUS_UNSPECIFIED: AckStatus
STORED: AckStatus
DUPLICATE: AckStatus
REJECTED: AckStatus
OUTCOME_UNSPECIFIED: Outcome
ASKED: Outcome
TAKEN: Outcome
REFUSED: Outcome
TIMED_OUT: Outcome
LOST: Outcome

class SegmentId(_message.Message):
    __slots__ = ("agent", "boot", "sequence")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    agent: str
    boot: str
    sequence: int
    def __init__(self, agent: _Optional[str] = ..., boot: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("schema", "dictionary", "windows", "agent_drops", "states")
    class AgentDropsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    AGENT_DROPS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    schema: int
    dictionary: Dictionary
    windows: _containers.RepeatedCompositeFieldContainer[Window]
    agent_drops: _containers.ScalarMap[str, int]
    states: _containers.RepeatedCompositeFieldContainer[ProcessState]
    def __init__(self, schema: _Optional[int] = ..., dictionary: _Optional[_Union[Dictionary, _Mapping]] = ..., windows: _Optional[_Iterable[_Union[Window, _Mapping]]] = ..., agent_drops: _Optional[_Mapping[str, int]] = ..., states: _Optional[_Iterable[_Union[ProcessState, _Mapping]]] = ...) -> None: ...

class Dictionary(_message.Message):
    __slots__ = ("strings", "nodes", "devices", "processes", "signatures")
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    strings: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    signatures: Signatures
    def __init__(self, strings: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ..., signatures: _Optional[_Union[Signatures, _Mapping]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("host", "boot_id", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HOST_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    host: str
    boot_id: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, host: _Optional[str] = ..., boot_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Peak(_message.Message):
    __slots__ = ("precision", "unit", "value", "source")
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    precision: str
    unit: str
    value: float
    source: str
    def __init__(self, precision: _Optional[str] = ..., unit: _Optional[str] = ..., value: _Optional[float] = ..., source: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("vendor", "model", "uuid", "index", "memory_bytes", "units", "driver", "inferred", "flops", "bandwidth")
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    INFERRED_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    vendor: str
    model: str
    uuid: str
    index: int
    memory_bytes: int
    units: int
    driver: str
    inferred: bool
    flops: _containers.RepeatedCompositeFieldContainer[Peak]
    bandwidth: Peak
    def __init__(self, vendor: _Optional[str] = ..., model: _Optional[str] = ..., uuid: _Optional[str] = ..., index: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., units: _Optional[int] = ..., driver: _Optional[str] = ..., inferred: _Optional[bool] = ..., flops: _Optional[_Iterable[_Union[Peak, _Mapping]]] = ..., bandwidth: _Optional[_Union[Peak, _Mapping]] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("node", "pid", "start_unix_ns", "user", "job", "container", "rank", "local_rank", "world_size", "model", "versions", "labels")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    node: int
    pid: int
    start_unix_ns: int
    user: str
    job: str
    container: str
    rank: int
    local_rank: int
    world_size: int
    model: str
    versions: _containers.ScalarMap[str, str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[int] = ..., pid: _Optional[int] = ..., start_unix_ns: _Optional[int] = ..., user: _Optional[str] = ..., job: _Optional[str] = ..., container: _Optional[str] = ..., rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., world_size: _Optional[int] = ..., model: _Optional[str] = ..., versions: _Optional[_Mapping[str, str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Signatures(_message.Message):
    __slots__ = ("id", "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "arguments", "formula", "precision", "unit", "flops", "bytes", "flops_max")
    ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    FORMULA_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FLOPS_MAX_FIELD_NUMBER: _ClassVar[int]
    id: _containers.RepeatedScalarFieldContainer[int]
    kernel: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    op: _containers.RepeatedScalarFieldContainer[int]
    phase: _containers.RepeatedScalarFieldContainer[int]
    module: _containers.RepeatedScalarFieldContainer[int]
    shapes: _containers.RepeatedScalarFieldContainer[int]
    dtypes: _containers.RepeatedScalarFieldContainer[int]
    arguments: _containers.RepeatedScalarFieldContainer[int]
    formula: _containers.RepeatedScalarFieldContainer[int]
    precision: _containers.RepeatedScalarFieldContainer[int]
    unit: _containers.RepeatedScalarFieldContainer[int]
    flops: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    flops_max: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[_Iterable[int]] = ..., kernel: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ..., op: _Optional[_Iterable[int]] = ..., phase: _Optional[_Iterable[int]] = ..., module: _Optional[_Iterable[int]] = ..., shapes: _Optional[_Iterable[int]] = ..., dtypes: _Optional[_Iterable[int]] = ..., arguments: _Optional[_Iterable[int]] = ..., formula: _Optional[_Iterable[int]] = ..., precision: _Optional[_Iterable[int]] = ..., unit: _Optional[_Iterable[int]] = ..., flops: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., flops_max: _Optional[_Iterable[int]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("uid", "process", "start_unix_ns", "duration_ns", "trigger", "collector", "steps", "represents_ns", "shapes_recorded", "devices", "ledger", "cost", "padding", "kernels", "first_step", "collectives", "graphs", "budget")
    UID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REPRESENTS_NS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_RECORDED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    uid: bytes
    process: int
    start_unix_ns: int
    duration_ns: int
    trigger: str
    collector: str
    steps: int
    represents_ns: int
    shapes_recorded: bool
    devices: _containers.RepeatedCompositeFieldContainer[DeviceWindow]
    ledger: Ledger
    cost: Cost
    padding: Padding
    kernels: KernelStats
    first_step: int
    collectives: Collectives
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    budget: BudgetState
    def __init__(self, uid: _Optional[bytes] = ..., process: _Optional[int] = ..., start_unix_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., trigger: _Optional[str] = ..., collector: _Optional[str] = ..., steps: _Optional[int] = ..., represents_ns: _Optional[int] = ..., shapes_recorded: _Optional[bool] = ..., devices: _Optional[_Iterable[_Union[DeviceWindow, _Mapping]]] = ..., ledger: _Optional[_Union[Ledger, _Mapping]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., padding: _Optional[_Union[Padding, _Mapping]] = ..., kernels: _Optional[_Union[KernelStats, _Mapping]] = ..., first_step: _Optional[int] = ..., collectives: _Optional[_Union[Collectives, _Mapping]] = ..., graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ..., budget: _Optional[_Union[BudgetState, _Mapping]] = ...) -> None: ...

class BudgetState(_message.Message):
    __slots__ = ("reason", "budget_share", "hard_stop_share", "spent_share", "balance_ns", "charged_ns", "measured", "interval_ns", "event_cap")
    REASON_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SHARE_FIELD_NUMBER: _ClassVar[int]
    HARD_STOP_SHARE_FIELD_NUMBER: _ClassVar[int]
    SPENT_SHARE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_NS_FIELD_NUMBER: _ClassVar[int]
    CHARGED_NS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    EVENT_CAP_FIELD_NUMBER: _ClassVar[int]
    reason: str
    budget_share: float
    hard_stop_share: float
    spent_share: float
    balance_ns: int
    charged_ns: int
    measured: bool
    interval_ns: int
    event_cap: int
    def __init__(self, reason: _Optional[str] = ..., budget_share: _Optional[float] = ..., hard_stop_share: _Optional[float] = ..., spent_share: _Optional[float] = ..., balance_ns: _Optional[int] = ..., charged_ns: _Optional[int] = ..., measured: _Optional[bool] = ..., interval_ns: _Optional[int] = ..., event_cap: _Optional[int] = ...) -> None: ...

class ProcessState(_message.Message):
    __slots__ = ("process", "unix_ns", "since_unix_ns", "budget", "skipped")
    class SkippedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    process: int
    unix_ns: int
    since_unix_ns: int
    budget: BudgetState
    skipped: _containers.ScalarMap[str, int]
    def __init__(self, process: _Optional[int] = ..., unix_ns: _Optional[int] = ..., since_unix_ns: _Optional[int] = ..., budget: _Optional[_Union[BudgetState, _Mapping]] = ..., skipped: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Collectives(_message.Message):
    __slots__ = ("device", "name", "group", "start_unix_ns", "duration_ns", "group_size", "sequence", "bytes")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    device: _containers.RepeatedScalarFieldContainer[int]
    name: _containers.RepeatedScalarFieldContainer[int]
    group: _containers.RepeatedScalarFieldContainer[int]
    start_unix_ns: _containers.RepeatedScalarFieldContainer[int]
    duration_ns: _containers.RepeatedScalarFieldContainer[int]
    group_size: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, device: _Optional[_Iterable[int]] = ..., name: _Optional[_Iterable[int]] = ..., group: _Optional[_Iterable[int]] = ..., start_unix_ns: _Optional[_Iterable[int]] = ..., duration_ns: _Optional[_Iterable[int]] = ..., group_size: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("device", "name", "launches", "records", "total_ns", "attributed_ns", "source", "confidence")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTED_NS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    device: int
    name: str
    launches: int
    records: int
    total_ns: int
    attributed_ns: int
    source: str
    confidence: float
    def __init__(self, device: _Optional[int] = ..., name: _Optional[str] = ..., launches: _Optional[int] = ..., records: _Optional[int] = ..., total_ns: _Optional[int] = ..., attributed_ns: _Optional[int] = ..., source: _Optional[str] = ..., confidence: _Optional[float] = ...) -> None: ...

class DeviceWindow(_message.Message):
    __slots__ = ("device", "span_ns", "busy_ns", "causes", "exposed_copy_ns", "exposed_communication_ns", "memory_used_bytes", "memory_peak_bytes", "state")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SPAN_NS_FIELD_NUMBER: _ClassVar[int]
    BUSY_NS_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_COPY_NS_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_COMMUNICATION_NS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    device: int
    span_ns: int
    busy_ns: int
    causes: _containers.RepeatedCompositeFieldContainer[IdleCause]
    exposed_copy_ns: int
    exposed_communication_ns: int
    memory_used_bytes: int
    memory_peak_bytes: int
    state: DeviceState
    def __init__(self, device: _Optional[int] = ..., span_ns: _Optional[int] = ..., busy_ns: _Optional[int] = ..., causes: _Optional[_Iterable[_Union[IdleCause, _Mapping]]] = ..., exposed_copy_ns: _Optional[int] = ..., exposed_communication_ns: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., state: _Optional[_Union[DeviceState, _Mapping]] = ...) -> None: ...

class DeviceState(_message.Message):
    __slots__ = ("clock_hz", "clock_max_hz", "power_w", "power_limit_w", "temperature_c", "throttle", "ecc_corrected", "ecc_uncorrected")
    CLOCK_HZ_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MAX_HZ_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    POWER_LIMIT_W_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    ECC_CORRECTED_FIELD_NUMBER: _ClassVar[int]
    ECC_UNCORRECTED_FIELD_NUMBER: _ClassVar[int]
    clock_hz: float
    clock_max_hz: float
    power_w: float
    power_limit_w: float
    temperature_c: float
    throttle: str
    ecc_corrected: int
    ecc_uncorrected: int
    def __init__(self, clock_hz: _Optional[float] = ..., clock_max_hz: _Optional[float] = ..., power_w: _Optional[float] = ..., power_limit_w: _Optional[float] = ..., temperature_c: _Optional[float] = ..., throttle: _Optional[str] = ..., ecc_corrected: _Optional[int] = ..., ecc_uncorrected: _Optional[int] = ...) -> None: ...

class IdleCause(_message.Message):
    __slots__ = ("cause", "total_ns", "count", "longest_ns", "example", "startup_ns", "startup_count", "steady_longest_ns", "steady_example")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LONGEST_NS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    STARTUP_NS_FIELD_NUMBER: _ClassVar[int]
    STARTUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    STEADY_LONGEST_NS_FIELD_NUMBER: _ClassVar[int]
    STEADY_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    total_ns: int
    count: int
    longest_ns: int
    example: str
    startup_ns: int
    startup_count: int
    steady_longest_ns: int
    steady_example: str
    def __init__(self, cause: _Optional[str] = ..., total_ns: _Optional[int] = ..., count: _Optional[int] = ..., longest_ns: _Optional[int] = ..., example: _Optional[str] = ..., startup_ns: _Optional[int] = ..., startup_count: _Optional[int] = ..., steady_longest_ns: _Optional[int] = ..., steady_example: _Optional[str] = ...) -> None: ...

class Ledger(_message.Message):
    __slots__ = ("events_read", "device_records", "device_time_ns", "has_host_events", "linked_ns", "backlog_ns", "classifiable_ns", "classified_ns", "named_ns", "dropped", "model_ns", "model_known_ns", "model_flops", "model_peak_ns", "compared_ns", "disagreed_ns", "layout_ns", "python_events", "waits", "wait_ns", "longest_wait_ns")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EVENTS_READ_FIELD_NUMBER: _ClassVar[int]
    DEVICE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    HAS_HOST_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LINKED_NS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_NS_FIELD_NUMBER: _ClassVar[int]
    CLASSIFIABLE_NS_FIELD_NUMBER: _ClassVar[int]
    CLASSIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    NAMED_NS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    MODEL_NS_FIELD_NUMBER: _ClassVar[int]
    MODEL_KNOWN_NS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FLOPS_FIELD_NUMBER: _ClassVar[int]
    MODEL_PEAK_NS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_NS_FIELD_NUMBER: _ClassVar[int]
    DISAGREED_NS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_NS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_EVENTS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    events_read: int
    device_records: int
    device_time_ns: int
    has_host_events: bool
    linked_ns: int
    backlog_ns: int
    classifiable_ns: int
    classified_ns: int
    named_ns: int
    dropped: _containers.ScalarMap[str, int]
    model_ns: int
    model_known_ns: int
    model_flops: int
    model_peak_ns: int
    compared_ns: int
    disagreed_ns: int
    layout_ns: int
    python_events: int
    waits: int
    wait_ns: int
    longest_wait_ns: int
    def __init__(self, events_read: _Optional[int] = ..., device_records: _Optional[int] = ..., device_time_ns: _Optional[int] = ..., has_host_events: _Optional[bool] = ..., linked_ns: _Optional[int] = ..., backlog_ns: _Optional[int] = ..., classifiable_ns: _Optional[int] = ..., classified_ns: _Optional[int] = ..., named_ns: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., model_ns: _Optional[int] = ..., model_known_ns: _Optional[int] = ..., model_flops: _Optional[int] = ..., model_peak_ns: _Optional[int] = ..., compared_ns: _Optional[int] = ..., disagreed_ns: _Optional[int] = ..., layout_ns: _Optional[int] = ..., python_events: _Optional[int] = ..., waits: _Optional[int] = ..., wait_ns: _Optional[int] = ..., longest_wait_ns: _Optional[int] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("close_path", "open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "longest_step_ns", "lost_in_ns", "lost_after_ns", "parse_cpu_ns")
    CLOSE_PATH_FIELD_NUMBER: _ClassVar[int]
    OPEN_NS_FIELD_NUMBER: _ClassVar[int]
    QUIESCE_NS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_NS_FIELD_NUMBER: _ClassVar[int]
    SAVE_NS_FIELD_NUMBER: _ClassVar[int]
    FREE_NS_FIELD_NUMBER: _ClassVar[int]
    BASE_STEP_NS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_STEP_NS_FIELD_NUMBER: _ClassVar[int]
    LOST_IN_NS_FIELD_NUMBER: _ClassVar[int]
    LOST_AFTER_NS_FIELD_NUMBER: _ClassVar[int]
    PARSE_CPU_NS_FIELD_NUMBER: _ClassVar[int]
    close_path: str
    open_ns: int
    quiesce_ns: int
    close_ns: int
    save_ns: int
    free_ns: int
    base_step_ns: int
    longest_step_ns: int
    lost_in_ns: int
    lost_after_ns: int
    parse_cpu_ns: int
    def __init__(self, close_path: _Optional[str] = ..., open_ns: _Optional[int] = ..., quiesce_ns: _Optional[int] = ..., close_ns: _Optional[int] = ..., save_ns: _Optional[int] = ..., free_ns: _Optional[int] = ..., base_step_ns: _Optional[int] = ..., longest_step_ns: _Optional[int] = ..., lost_in_ns: _Optional[int] = ..., lost_after_ns: _Optional[int] = ..., parse_cpu_ns: _Optional[int] = ...) -> None: ...

class Padding(_message.Message):
    __slots__ = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared", "lengths", "counts", "shape_sequences", "shape_lengths", "shape_batches", "coarsened", "unread")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    REAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PADDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REAL_SQUARED_FIELD_NUMBER: _ClassVar[int]
    PADDED_SQUARED_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_BATCHES_FIELD_NUMBER: _ClassVar[int]
    COARSENED_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    batches: int
    real_tokens: int
    padded_tokens: int
    real_squared: int
    padded_squared: int
    lengths: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    shape_sequences: _containers.RepeatedScalarFieldContainer[int]
    shape_lengths: _containers.RepeatedScalarFieldContainer[int]
    shape_batches: _containers.RepeatedScalarFieldContainer[int]
    coarsened: int
    unread: int
    def __init__(self, batches: _Optional[int] = ..., real_tokens: _Optional[int] = ..., padded_tokens: _Optional[int] = ..., real_squared: _Optional[int] = ..., padded_squared: _Optional[int] = ..., lengths: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., shape_sequences: _Optional[_Iterable[int]] = ..., shape_lengths: _Optional[_Iterable[int]] = ..., shape_batches: _Optional[_Iterable[int]] = ..., coarsened: _Optional[int] = ..., unread: _Optional[int] = ...) -> None: ...

class KernelStats(_message.Message):
    __slots__ = ("signature", "device", "calls", "total_ns", "min_ns", "max_ns", "bound", "evidence", "roof_ns", "ridge", "step_calls", "step_ns", "histogram_low", "histogram_length", "histogram_counts", "formula_bound")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    MIN_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_NS_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    ROOF_NS_FIELD_NUMBER: _ClassVar[int]
    RIDGE_FIELD_NUMBER: _ClassVar[int]
    STEP_CALLS_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_LOW_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FORMULA_BOUND_FIELD_NUMBER: _ClassVar[int]
    signature: _containers.RepeatedScalarFieldContainer[int]
    device: _containers.RepeatedScalarFieldContainer[int]
    calls: _containers.RepeatedScalarFieldContainer[int]
    total_ns: _containers.RepeatedScalarFieldContainer[int]
    min_ns: _containers.RepeatedScalarFieldContainer[int]
    max_ns: _containers.RepeatedScalarFieldContainer[int]
    bound: _containers.RepeatedScalarFieldContainer[int]
    evidence: _containers.RepeatedScalarFieldContainer[int]
    roof_ns: _containers.RepeatedScalarFieldContainer[float]
    ridge: _containers.RepeatedScalarFieldContainer[float]
    step_calls: _containers.RepeatedScalarFieldContainer[int]
    step_ns: _containers.RepeatedScalarFieldContainer[int]
    histogram_low: _containers.RepeatedScalarFieldContainer[int]
    histogram_length: _containers.RepeatedScalarFieldContainer[int]
    histogram_counts: _containers.RepeatedScalarFieldContainer[int]
    formula_bound: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, signature: _Optional[_Iterable[int]] = ..., device: _Optional[_Iterable[int]] = ..., calls: _Optional[_Iterable[int]] = ..., total_ns: _Optional[_Iterable[int]] = ..., min_ns: _Optional[_Iterable[int]] = ..., max_ns: _Optional[_Iterable[int]] = ..., bound: _Optional[_Iterable[int]] = ..., evidence: _Optional[_Iterable[int]] = ..., roof_ns: _Optional[_Iterable[float]] = ..., ridge: _Optional[_Iterable[float]] = ..., step_calls: _Optional[_Iterable[int]] = ..., step_ns: _Optional[_Iterable[int]] = ..., histogram_low: _Optional[_Iterable[int]] = ..., histogram_length: _Optional[_Iterable[int]] = ..., histogram_counts: _Optional[_Iterable[int]] = ..., formula_bound: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentEnvelope(_message.Message):
    __slots__ = ("id", "payload", "crc32", "raw_bytes", "windows")
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    id: SegmentId
    payload: bytes
    crc32: int
    raw_bytes: int
    windows: int
    def __init__(self, id: _Optional[_Union[SegmentId, _Mapping]] = ..., payload: _Optional[bytes] = ..., crc32: _Optional[int] = ..., raw_bytes: _Optional[int] = ..., windows: _Optional[int] = ...) -> None: ...

class AgentHello(_message.Message):
    __slots__ = ("protocol", "agent", "boot", "version", "node")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    agent: str
    boot: str
    version: str
    node: Node
    def __init__(self, protocol: _Optional[int] = ..., agent: _Optional[str] = ..., boot: _Optional[str] = ..., version: _Optional[str] = ..., node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("hello", "segment", "result", "processes", "outcome", "traces", "part")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    hello: AgentHello
    segment: SegmentEnvelope
    result: CommandResult
    processes: ProcessList
    outcome: WindowOutcome
    traces: TraceList
    part: TracePart
    def __init__(self, hello: _Optional[_Union[AgentHello, _Mapping]] = ..., segment: _Optional[_Union[SegmentEnvelope, _Mapping]] = ..., result: _Optional[_Union[CommandResult, _Mapping]] = ..., processes: _Optional[_Union[ProcessList, _Mapping]] = ..., outcome: _Optional[_Union[WindowOutcome, _Mapping]] = ..., traces: _Optional[_Union[TraceList, _Mapping]] = ..., part: _Optional[_Union[TracePart, _Mapping]] = ...) -> None: ...

class StoreHello(_message.Message):
    __slots__ = ("protocol", "version")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("id", "status", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: SegmentId
    status: AckStatus
    reason: str
    def __init__(self, id: _Optional[_Union[SegmentId, _Mapping]] = ..., status: _Optional[_Union[AckStatus, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "take_window", "set_schedule", "find_processes", "find_traces", "read_trace")
    ID_FIELD_NUMBER: _ClassVar[int]
    TAKE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    SET_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    FIND_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    FIND_TRACES_FIELD_NUMBER: _ClassVar[int]
    READ_TRACE_FIELD_NUMBER: _ClassVar[int]
    id: str
    take_window: TakeWindow
    set_schedule: SetSchedule
    find_processes: FindProcesses
    find_traces: FindTraces
    read_trace: ReadTrace
    def __init__(self, id: _Optional[str] = ..., take_window: _Optional[_Union[TakeWindow, _Mapping]] = ..., set_schedule: _Optional[_Union[SetSchedule, _Mapping]] = ..., find_processes: _Optional[_Union[FindProcesses, _Mapping]] = ..., find_traces: _Optional[_Union[FindTraces, _Mapping]] = ..., read_trace: _Optional[_Union[ReadTrace, _Mapping]] = ...) -> None: ...

class TakeWindow(_message.Message):
    __slots__ = ("pids", "steps", "duration_ms", "shapes", "processes", "modulus", "remainder", "keep_trace", "within_ms", "asked_by")
    PIDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    MODULUS_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    KEEP_TRACE_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    pids: _containers.RepeatedScalarFieldContainer[int]
    steps: int
    duration_ms: int
    shapes: bool
    processes: _containers.RepeatedScalarFieldContainer[str]
    modulus: int
    remainder: int
    keep_trace: bool
    within_ms: int
    asked_by: str
    def __init__(self, pids: _Optional[_Iterable[int]] = ..., steps: _Optional[int] = ..., duration_ms: _Optional[int] = ..., shapes: _Optional[bool] = ..., processes: _Optional[_Iterable[str]] = ..., modulus: _Optional[int] = ..., remainder: _Optional[int] = ..., keep_trace: _Optional[bool] = ..., within_ms: _Optional[int] = ..., asked_by: _Optional[str] = ...) -> None: ...

class FindProcesses(_message.Message):
    __slots__ = ("job", "process", "model")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    job: str
    process: str
    model: str
    def __init__(self, job: _Optional[str] = ..., process: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class ProcessList(_message.Message):
    __slots__ = ("id", "processes", "left_out")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    processes: _containers.RepeatedCompositeFieldContainer[FoundProcess]
    left_out: int
    def __init__(self, id: _Optional[str] = ..., processes: _Optional[_Iterable[_Union[FoundProcess, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class FoundProcess(_message.Message):
    __slots__ = ("process", "pid", "job", "model", "user", "rank", "world_size", "step_ns", "steps", "windows")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    process: str
    pid: int
    job: str
    model: str
    user: str
    rank: int
    world_size: int
    step_ns: int
    steps: int
    windows: int
    def __init__(self, process: _Optional[str] = ..., pid: _Optional[int] = ..., job: _Optional[str] = ..., model: _Optional[str] = ..., user: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., step_ns: _Optional[int] = ..., steps: _Optional[int] = ..., windows: _Optional[int] = ...) -> None: ...

class WindowOutcome(_message.Message):
    __slots__ = ("id", "process", "outcome", "reason", "detail", "window", "steps", "first_step", "duration_ns", "kept", "not_kept", "node")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NOT_KEPT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    id: str
    process: str
    outcome: Outcome
    reason: str
    detail: str
    window: bytes
    steps: int
    first_step: int
    duration_ns: int
    kept: bool
    not_kept: str
    node: str
    def __init__(self, id: _Optional[str] = ..., process: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., window: _Optional[bytes] = ..., steps: _Optional[int] = ..., first_step: _Optional[int] = ..., duration_ns: _Optional[int] = ..., kept: _Optional[bool] = ..., not_kept: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class FindTraces(_message.Message):
    __slots__ = ("window",)
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    window: str
    def __init__(self, window: _Optional[str] = ...) -> None: ...

class TraceList(_message.Message):
    __slots__ = ("id", "traces", "left_out")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    traces: _containers.RepeatedCompositeFieldContainer[KeptTrace]
    left_out: int
    def __init__(self, id: _Optional[str] = ..., traces: _Optional[_Iterable[_Union[KeptTrace, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class KeptTrace(_message.Message):
    __slots__ = ("window", "format", "size", "sha256", "kept_unix_ns", "start_unix_ns", "process", "pid", "job", "model", "user", "rank", "node", "stored", "duration_ns", "steps", "first_step")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    KEPT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    window: bytes
    format: str
    size: int
    sha256: bytes
    kept_unix_ns: int
    start_unix_ns: int
    process: str
    pid: int
    job: str
    model: str
    user: str
    rank: int
    node: str
    stored: bool
    duration_ns: int
    steps: int
    first_step: int
    def __init__(self, window: _Optional[bytes] = ..., format: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ..., kept_unix_ns: _Optional[int] = ..., start_unix_ns: _Optional[int] = ..., process: _Optional[str] = ..., pid: _Optional[int] = ..., job: _Optional[str] = ..., model: _Optional[str] = ..., user: _Optional[str] = ..., rank: _Optional[int] = ..., node: _Optional[str] = ..., stored: _Optional[bool] = ..., duration_ns: _Optional[int] = ..., steps: _Optional[int] = ..., first_step: _Optional[int] = ...) -> None: ...

class ReadTrace(_message.Message):
    __slots__ = ("window", "offset", "most", "asked_by")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    window: bytes
    offset: int
    most: int
    asked_by: str
    def __init__(self, window: _Optional[bytes] = ..., offset: _Optional[int] = ..., most: _Optional[int] = ..., asked_by: _Optional[str] = ...) -> None: ...

class TracePart(_message.Message):
    __slots__ = ("id", "offset", "data", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    offset: int
    data: bytes
    reason: str
    def __init__(self, id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class SetSchedule(_message.Message):
    __slots__ = ("interval_s", "steps", "duration_ms")
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    interval_s: int
    steps: int
    duration_ms: int
    def __init__(self, interval_s: _Optional[int] = ..., steps: _Optional[int] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("id", "pid", "accepted", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    pid: int
    accepted: bool
    reason: str
    def __init__(self, id: _Optional[str] = ..., pid: _Optional[int] = ..., accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class StoreMessage(_message.Message):
    __slots__ = ("hello", "ack", "command")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    hello: StoreHello
    ack: Ack
    command: Command
    def __init__(self, hello: _Optional[_Union[StoreHello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("since_unix_ns", "until_unix_ns", "node", "process", "model", "device", "labels", "vendor", "job")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    since_unix_ns: int
    until_unix_ns: int
    node: str
    process: str
    model: str
    device: str
    labels: _containers.ScalarMap[str, str]
    vendor: str
    job: str
    def __init__(self, since_unix_ns: _Optional[int] = ..., until_unix_ns: _Optional[int] = ..., node: _Optional[str] = ..., process: _Optional[str] = ..., model: _Optional[str] = ..., device: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., vendor: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("query", "filter", "limit", "other", "options")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    query: str
    filter: Filter
    limit: int
    other: Filter
    options: str
    def __init__(self, query: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., limit: _Optional[int] = ..., other: _Optional[_Union[Filter, _Mapping]] = ..., options: _Optional[str] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("answer", "received_unix_ns", "sent_unix_ns")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    answer: bytes
    received_unix_ns: int
    sent_unix_ns: int
    def __init__(self, answer: _Optional[bytes] = ..., received_unix_ns: _Optional[int] = ..., sent_unix_ns: _Optional[int] = ...) -> None: ...

class CaptureRequest(_message.Message):
    __slots__ = ("which", "node", "all_ranks", "ranks", "steps", "duration_ms", "keep_trace", "within_ms")
    WHICH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ALL_RANKS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_TRACE_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    which: FindProcesses
    node: str
    all_ranks: bool
    ranks: _containers.RepeatedScalarFieldContainer[int]
    steps: int
    duration_ms: int
    keep_trace: bool
    within_ms: int
    def __init__(self, which: _Optional[_Union[FindProcesses, _Mapping]] = ..., node: _Optional[str] = ..., all_ranks: _Optional[bool] = ..., ranks: _Optional[_Iterable[int]] = ..., steps: _Optional[int] = ..., duration_ms: _Optional[int] = ..., keep_trace: _Optional[bool] = ..., within_ms: _Optional[int] = ...) -> None: ...

class CaptureEvent(_message.Message):
    __slots__ = ("found", "outcome")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    found: CaptureFound
    outcome: WindowOutcome
    def __init__(self, found: _Optional[_Union[CaptureFound, _Mapping]] = ..., outcome: _Optional[_Union[WindowOutcome, _Mapping]] = ...) -> None: ...

class CaptureFound(_message.Message):
    __slots__ = ("targets", "passed_over", "silent", "agents", "world_size")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[CaptureTarget]
    passed_over: int
    silent: _containers.RepeatedCompositeFieldContainer[SilentAgent]
    agents: int
    world_size: int
    def __init__(self, targets: _Optional[_Iterable[_Union[CaptureTarget, _Mapping]]] = ..., passed_over: _Optional[int] = ..., silent: _Optional[_Iterable[_Union[SilentAgent, _Mapping]]] = ..., agents: _Optional[int] = ..., world_size: _Optional[int] = ...) -> None: ...

class CaptureTarget(_message.Message):
    __slots__ = ("process", "node")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    process: FoundProcess
    node: str
    def __init__(self, process: _Optional[_Union[FoundProcess, _Mapping]] = ..., node: _Optional[str] = ...) -> None: ...

class SilentAgent(_message.Message):
    __slots__ = ("node", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TraceListRequest(_message.Message):
    __slots__ = ("window", "node")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    window: str
    node: str
    def __init__(self, window: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class TraceListing(_message.Message):
    __slots__ = ("traces", "silent", "left_out", "compared")
    TRACES_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    traces: _containers.RepeatedCompositeFieldContainer[KeptTrace]
    silent: _containers.RepeatedCompositeFieldContainer[SilentAgent]
    left_out: int
    compared: bool
    def __init__(self, traces: _Optional[_Iterable[_Union[KeptTrace, _Mapping]]] = ..., silent: _Optional[_Iterable[_Union[SilentAgent, _Mapping]]] = ..., left_out: _Optional[int] = ..., compared: _Optional[bool] = ...) -> None: ...

class GetTraceRequest(_message.Message):
    __slots__ = ("window", "node")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    window: bytes
    node: str
    def __init__(self, window: _Optional[bytes] = ..., node: _Optional[str] = ...) -> None: ...

class TraceChunk(_message.Message):
    __slots__ = ("head", "data")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    head: KeptTrace
    data: bytes
    def __init__(self, head: _Optional[_Union[KeptTrace, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
