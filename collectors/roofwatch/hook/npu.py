"""Windows of an NPU: torch_npu's profiler on the stepping thread, then the vendor's analysis in a child of the job.

Always a fresh profiler: it is good for one recording. Its calls swallow their exceptions, so what it wrote is read.
"""

import os
import shutil
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from . import npu_guard, protocol
from .bindings import Bindings
from .log import failure, log
from .npu_analysis import Analysis
from .npu_names import METRICS, Vendor
from .npu_scratch import Folder, incomplete, room, size, window_most
from .paths import NoPath, PlainPath
from .pending import PendingCall
from .request import Refused


class NpuPath(PlainPath):
    """Opened and closed at step boundaries, by the thread that steps or, without steps, by the main thread."""

    name = protocol.NPU
    any_thread = False
    warms = True
    timed = True  # the device's records are of all threads
    apart = True

    def __init__(self, bindings: Bindings, vendor: Vendor) -> None:
        self.bindings, self.vendor = bindings, vendor
        self.quiet, self.place = npu_guard.Quiet(vendor), npu_guard.Place(vendor)
        self.thread: Optional[int] = None
        self.stall_ns = (0, 0, 0)
        self.metrics = METRICS[0]
        self.stop: Callable[[], bool] = lambda: False  # nobody waits for the window any more
        self.exiting: Callable[[], bool] = lambda: False
        self.told: Dict[str, Any] = {}
        self._folder: Optional[Folder] = None
        self._profile: Any = None
        self._at: Optional[str] = None  # the profile's own folder
        self._native: int = 0  # the kernel's number of the thread
        self._analysis: Any = None  # or the refusal instead of one
        self._stop_ns = 0
        self._problem = ""
        self._act: Optional[Callable[[], None]] = None
        self._call = PendingCall(self._on_main)

    def ready(self, request: Dict[str, Any]) -> None:
        """On the hook's thread, before the window. Raises Refused where it would come to nothing."""
        who = npu_guard.others(self.vendor)
        if who:
            raise Refused(protocol.OWN_PROFILER, who)
        wish = request.get("metrics") or METRICS[0]
        if wish not in METRICS or getattr(self.vendor, wish) is None:
            raise Refused(protocol.UNSUPPORTED, "metrics")
        if shutil.which("msprof") is None:  # the analysis calls it by this name
            raise Refused(protocol.ANALYSIS, "no msprof on PATH")
        self.metrics = wish
        room()

    def taken(self) -> bool:
        """Whether somebody else's profiler is open, of torch or of torch_npu."""
        return bool(self.bindings.enabled()) or self.place.busy()

    def startable(self) -> bool:
        """Every thread may."""
        return True

    def prepare(self, shapes: bool) -> None:
        """First half of opening. Raises Refused, with everything as it was."""
        vendor, self._problem, self._folder = self.vendor, "", Folder()
        self.thread, self._native = threading.get_ident(), threading.get_native_id()
        self.place.remember()
        with self.quiet:
            try:
                handler = vendor.handler(dir_name=self._folder.path, analyse_flag=False)
                self._profile = None if handler is None else self._made(handler, shapes)
                if self._profile is not None:
                    self._profile.start()
                    self._at = self._folder.profile()
                if self._at is None:
                    self._problem = "start: " + (self.quiet.why() or "nothing was begun")
                    self._end()
            finally:
                self.place.give_back(self._at)
        if self._problem:
            self.thread = None
            self.free(None)
            raise Refused(protocol.ERROR, self._problem)

    def _made(self, handler: Any, shapes: bool) -> Any:
        vendor = self.vendor
        config = vendor.config(
            profiler_level=vendor.level,
            aic_metrics=getattr(vendor, self.metrics),
            l2_cache=False,
            data_simplification=True,
            export_type=vendor.db,
        )
        return vendor.profile(
            activities=[vendor.cpu, vendor.npu],
            schedule=vendor.schedule(wait=0, warmup=1, active=1, repeat=1),
            on_trace_ready=handler,
            record_shapes=shapes,
            profile_memory=False,
            with_stack=False,
            with_flops=False,
            with_modules=False,
            experimental_config=config,
        )

    def enable(self) -> None:
        """Second half: records from here on. The profiler's one step is the whole window."""
        with self.quiet:
            self._profile.step()

    def cut(self) -> None:
        """The stall: the device is waited for, and its data is written out."""
        begun = time.monotonic_ns()
        with self.quiet:
            self._profile.step()
            self._end()
        self.thread = None
        self._stop_ns = time.monotonic_ns() - begun
        if self.place.busy() and not self._problem:
            self._problem = "stop: " + (self.quiet.why() or "it still records")

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()
        self.place.end(self._at)

    def settle(self, stop: Callable[[], bool]) -> bool:
        """False where the profiler could not be stopped: this process takes no more windows."""
        if self._problem:
            log("npu: " + self._problem)
            self.free(None)
            return False
        return not stop()

    def full(self) -> bool:
        """Whether an open window has written as much as it may."""
        return self._folder is not None and size(self._folder.path) > window_most()

    def foreign(self) -> bool:
        """Whether only another thread may close the open window; one that has ended needs not be asked."""
        return super().foreign() and os.path.exists("/proc/self/task/%d" % self._native)

    def start(self) -> None:
        """Hand the window's folder to a child of its own, or remember why not."""
        try:
            self._analysis = self._started()
        except (Refused, OSError) as error:
            self._analysis = error

    def _started(self) -> Analysis:
        folder, at = self._folder, self._at
        if folder is None or at is None:
            raise Refused(protocol.GIVEN_UP)
        lacks = incomplete(at)
        if lacks:
            raise Refused(protocol.ERROR, lacks)
        if self.full():
            raise Refused(protocol.DISK, "window")
        self._folder = self._at = None
        return Analysis(folder, at, _roots())

    def save(self, _result: Any) -> int:
        """The database's descriptor, once the child is through. Raises Refused or OSError."""
        begun = time.monotonic_ns()
        analysis, self._analysis = self._analysis, None
        if not isinstance(analysis, Analysis):
            raise analysis
        fd, facts = analysis.wait(self.stop, self.exiting)
        waited = time.monotonic_ns() - begun
        self.stall_ns = (self._stop_ns, waited, 0)
        log("analysis: %d rows, %.1f s, %.1f s of CPU" % (facts["rows"], waited / 1e9, facts["cpu_ns"] / 1e9))
        self.told = {"format": protocol.ASCEND_DB, "metrics": self.metrics, "analysis": facts}
        return fd

    def free(self, _result: Any) -> None:
        """Delete what nobody asked for."""
        folder, self._folder, self._at = self._folder, None, None
        if folder is not None:
            folder.remove()

    def inherit(self) -> bool:
        """In a forked child: everything is the parent's."""
        if self._folder is not None:
            self._folder.unlock()
        self._folder = self._at = self._profile = None
        return False

    def abandon(self, cut: bool) -> None:
        """The process ends."""
        if cut and not self.foreign():
            self.cut()
        self.free(None)


def used(torch: Any) -> bool:
    """Whether this process computes on an NPU. Imports nothing and starts no device."""
    npu = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    try:
        return npu is not None and bool(npu.is_initialized() and npu.is_available())
    except Exception:  # a torch_npu whose import has not ended
        return False


def choose(torch: Any, environ: Any = os.environ) -> Any:
    """The path for a process that computes on an NPU; none where this torch_npu lacks what the hook uses."""
    if environ.get("ROOFWATCH_HOOK_CLOSE") == protocol.NONE:
        return NoPath()
    try:
        return NpuPath(Bindings(torch), Vendor())
    except Exception as error:
        failure("npu", error)
        return NoPath()


def _roots() -> List[str]:
    """Where the job's torch and torch_npu lie, for an interpreter that might not find them by itself."""
    found = []
    for name in ("torch", "torch_npu"):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            found.append(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    return found
