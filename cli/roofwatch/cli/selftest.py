"""``roofwatch self-test``: a short job on this node, from its first step to an answer about it, stage by stage."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roofwatch.cli import doctor, doctor_agent, trusting
from roofwatch.cli.asking import ask
from roofwatch.cli.fleet.local import PROGRAM, environment
from roofwatch.cli.supervise import Child, Children, children
from roofwatch.model.errors import RoofwatchError, UnreachableError
from roofwatch.store.filter import Filter

MODEL, LABEL = "roofwatch-self-test", "self-test"
INTERVAL_S = 1.0
BUDGET = "50"  # per cent of the job's time: in ten seconds the usual half per cent buys no window
START_S, TORCH_S, WINDOW_S, STORED_S, END_S = 20.0, 120.0, 30.0, 15.0, 30.0
JOB = Path(__file__).parent / "demo_jobs" / "self_test.py"


@dataclass(frozen=True, slots=True)
class Stage:
    """One line: what was tried, whether it worked, how long it took, what was seen or what to do."""

    stage: str
    ok: bool
    seconds: float
    detail: str
    advice: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The row of the answer."""
        return asdict(self)


class FailedError(RoofwatchError):
    """A stage did not work, and with it none after it."""

    def __init__(self, told: str, advice: str) -> None:
        super().__init__(told)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants tried. ``store``: one that runs, "" for one of our own."""

    python: str
    store: str
    seconds: float
    device: str = "auto"


class Test:
    """What is known so far. Each stage is a method that gives its detail, or raises."""

    def __init__(self, asked: Asked, group: Children, folder: Path) -> None:
        self._asked, self._group, self._folder = asked, group, folder
        self._env = {**environment(), "ROOFWATCH_SOCKET": str(folder / "agent.sock")}
        self._run, self._store = secrets.token_hex(4), asked.store
        self._job: Child | None = None
        self._began = 0.0

    def stages(self) -> Sequence[tuple[str, Callable[[], str]]]:
        """In the order of a record's way."""
        return (
            ("torch", self.torch), ("store", self.store), ("agent", self.agent), ("job", self.job),
            ("registered", self.registered), ("window", self.window), ("stored", self.stored),
            ("answer", self.answer), ("job's end", self.job_end), ("stop", self.stop),
        )  # fmt: skip

    def torch(self) -> str:
        """The job's Python and its torch."""
        check = doctor.torch(doctor.Asked(self._asked.python, "", "", None))
        if check.status == "fail" or "has no torch" in check.detail:
            raise FailedError(check.detail, check.advice or "name the job's Python with --python")
        return check.detail

    def store(self) -> str:
        """One of our own, or the one that is named: it answers."""
        if self._store:
            ask("nodes", Filter(), 1, store=self._store, db=None)
            return f"{self._store} answers"
        port = self._folder / "port"
        listen = ("--listen", "127.0.0.1:0", "--port-file", str(port), "--db", f"sqlite:///{self._folder}/store.db")
        self._group.start("store", (*PROGRAM, "store", "serve", *listen), self._env)
        self._group.until(port.exists, "the store did not listen", START_S)
        self._store = f"127.0.0.1:{port.read_text().strip()}"
        return f"its own, on {self._store}"

    def agent(self) -> str:
        """One of our own, connected to the store."""
        state, labels = str(self._folder / "state"), f"{LABEL}={self._run}"
        settings = ["--state", state, "--store", self._store, "--labels", labels, "--interval", str(INTERVAL_S)]
        settings += ["--budget", BUDGET, "--hard-stop", BUDGET, *(self._trust() if self._asked.store else ())]
        self._group.start("agent", (*PROGRAM, "agent", *settings), self._env)
        self._until((self._folder / "agent.sock").exists, START_S, "the agent does not listen", "agent")
        self._until(
            lambda: self._told()["uplink"]["connected"], START_S, "the agent does not reach the store", "agent",
            lambda: self._told()["uplink"]["last_error"] or "",
        )  # fmt: skip
        return f"its own, connected to {self._store}"

    def _trust(self) -> list[str]:
        trust = trusting.given()
        flags = {
            "--tls-ca": trust.ca,
            "--tls-cert": trust.cert,
            "--tls-key": trust.key,
            "--token-file": trust.token_file,
        }
        typed = [word for flag, path in flags.items() if path for word in (flag, str(Path(path).absolute()))]
        return [*typed, *(["--insecure"] if trust.insecure else [])]

    def job(self) -> str:
        """A real job with the hook; it says where it trains."""
        words = (
            shutil.which(self._asked.python) or self._asked.python,
            str(JOB),
            "--seconds",
            str(self._asked.seconds),
        )
        command = (*PROGRAM, "run", "--model", MODEL, "--", *words, "--device", self._asked.device)
        self._began = time.monotonic()
        self._job = self._group.start("job", command, self._env)
        self._until(lambda: "device " in self._said(), TORCH_S, "the job does not train", "job")
        return f"trains on {self._said().split()[1]}"

    def registered(self) -> str:
        """The hook has found the agent."""
        self._until(
            lambda: self._told()["process_list"] or self._counted("recorded"), START_S,
            "the hook did not register with the agent", "job",
        )  # fmt: skip
        listed = self._told()["process_list"]
        return f"pid {listed[0]['pid']}, windows close {listed[0]['close_path']}" if listed else "and gone"

    def window(self) -> str:
        """A window was asked for, taken and read."""
        self._until(lambda: self._counted("recorded"), WINDOW_S, "no window came", "agent", self._why_none)
        return f"{self._counted('recorded')} taken and read"

    def stored(self) -> str:
        """The store has acknowledged it."""
        self._until(lambda: self._counted("stored"), STORED_S, "no window was acknowledged", "agent", self._why_none)
        return f"{self._counted('stored')} acknowledged"

    def answer(self) -> str:
        """A question about the job is answered, and kernels are in the answer."""
        wanted = Filter(labels={LABEL: self._run})
        top = ask("top", wanted, 1, store=self._store, db=None)
        if not top["rows"]:
            raise FailedError(
                "the store has the window and no kernel of it", "look at the agent's log: roofwatch doctor"
            )
        first = top["rows"][0]
        return f"{top['coverage']['windows']} windows; first of all: {first['kernel']}"

    def job_end(self) -> str:
        """The job has ended by itself, as if we had not been there."""
        if self._job is None:
            raise FailedError("no job was started", "run it again")
        left = max(1.0, self._began + self._asked.seconds - time.monotonic())
        code = self._group.ended(self._job, left + END_S)
        if code != 0:
            raise FailedError(f"the job ended with {code}: {self._job.tail()}", "see whether it does without roofwatch")
        return self._said().splitlines()[-1]

    def stop(self) -> str:
        """The agent goes in order and leaves nothing that the store does not have."""
        self._until(lambda: not self._told()["spool"]["windows"], STORED_S, "windows are left in the spool", "agent")
        counted, told = self._told()["windows"], self._told()
        lost = {reason: n for reason, n in told["drops"].items() if n}
        self._group.stop()
        if lost:
            words = ", ".join(
                f"{n} {reason} ({doctor_agent.LOST.get(reason, 'see its log')})" for reason, n in lost.items()
            )
            raise FailedError(f"windows were lost: {words}", "the reasons are in docs/agent.md")
        return f"{counted.get('stored', 0)} windows stored, none lost"

    def _told(self) -> dict[str, Any]:
        from roofwatch.agent import status  # noqa: PLC0415

        return status.request(str(self._folder / "agent.sock"))

    def _counted(self, state: str) -> int:
        return int(self._told()["windows"].get(state, 0))

    def _said(self) -> str:
        return self._job.log.read_text(encoding="utf-8", errors="replace") if self._job is not None else ""

    def _why_none(self) -> str:
        told = self._told()
        reasons = {**told["refusals"], **told["held"], **told["drops"]}
        return ", ".join(f"{n} {reason}" for reason, n in reasons.items() if n) or "none was asked for"

    def _until(
        self, ready: Callable[[], Any], within_s: float, what: str, whose: str, why: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait; where it does not come, say what is known of why, and quote who should have done it."""
        end = time.monotonic() + within_s
        while not ready():
            ended = [c for c in self._group.running() if c.process.poll() is not None and c is not self._job]
            if ended:
                raise FailedError(f"the {ended[0].name} ended: {ended[0].tail()}", "its words say why")
            if self._job is not None and (self._job.process.poll() or 0) > 0:
                raise FailedError(f"the job failed: {self._job.tail()}", "its words say why")
            if time.monotonic() > end:
                child = next((c for c in self._group.running() if c.name == whose), None)
                told = why() or (child.tail() if child is not None else "")
                raise FailedError(f"{what} within {within_s:.0f} s: {told}", "roofwatch doctor checks what this needs")
            time.sleep(0.05)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="roofwatch-self-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(asked: Asked, tell: Callable[[Stage], None]) -> list[Stage]:
    """Try each stage until one does not work; ``tell`` hears of each as it ends. Nothing is left behind.

    Raises:
        UnreachableError: the store that was named does not answer.
    """
    done: list[Stage] = []
    with _folder() as folder, children(folder) as group:
        for name, stage in Test(asked, group, folder).stages():
            began = time.monotonic()
            try:
                detail, advice, ok = stage(), None, True
            except UnreachableError:
                if name == "store":
                    raise
                detail, advice, ok = "the agent or the store does not answer any more", "roofwatch doctor", False
            except FailedError as error:
                detail, advice, ok = str(error), error.advice, False
            except RoofwatchError as error:
                detail, advice, ok = str(error), "roofwatch doctor checks what this needs", False
            done.append(Stage(name, ok, round(time.monotonic() - began, 2), detail, advice))
            tell(done[-1])
            if not ok:
                break
    return done
