"""What the hook believes of torch_npu, held against the vendor's own wheel: read as text, never imported or installed.

``make torch-npu`` fetches the wheel into ``build/``; without it these tests skip, but for those of the stand-in.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from vendor_tree import Missing, Tree, calls, decorators, function, members, parameters  # found by the line above

from roofwatch.hook import job, npu_child, npu_guard, npu_scratch
from roofwatch.hook.npu_names import METRICS, USED, Name
from roofwatch.model.advice_vendors import FIXES_OF, WORDS
from roofwatch.model.record import Vendor

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build" / "torch-npu"
PROFILER = "torch_npu.profiler"
CONSTANT = PROFILER + ".analysis.prof_common_func._constant"
INTERFACE = PROFILER + ".profiler_interface"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The Python files of torch-npu 2.13.0."""
    found = sorted(WHEELS.glob("torch_npu-2.13.0-*.whl"))
    if not found:
        pytest.skip(f"no torch-npu wheel in {WHEELS}: fetch it with `make torch-npu` (43 MB, network)")
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(found[0]) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", ".txt"))])
    return Tree(folder)


@pytest.fixture(params=["wheel", "stand-in"])
def tree(request: pytest.FixtureRequest) -> Tree:
    """Both, the vendor's and ours: what the stand-in lacks nothing else here would have been tested with."""
    return request.getfixturevalue("wheel") if request.param == "wheel" else Tree(ROOT / "tests" / "ascend_stand_in")


@pytest.mark.parametrize("key", sorted(USED))
def test_every_name_the_hook_uses_is_there(tree: Tree, key: str) -> None:
    """Where it is looked up, with the arguments given, the members touched, and the value it must have."""
    name: Name = USED[key]
    first, *rest = name.path.split(".")
    module, node = tree.find(name.module, first)
    if name.value is not None:
        assert tree.attribute(module, node, rest[0]) == name.value
    elif rest and isinstance(node, ast.ImportFrom):  # an enumeration that is C++: used by that name in the package
        assert uses(tree, f"{first}.{rest[0]}")
    elif rest:
        assert any(ast.unparse(entry).startswith(f"{rest[0]} = ") for entry in node.body)
    if name.arguments:
        assert set(name.arguments) <= parameters(node)
    assert set(name.members) <= members(node)


def uses(tree: Tree, text: str) -> bool:
    """Whether a text stands in the profiler's own files."""
    return any(text in path.read_text(encoding="utf-8") for path in (tree.root / "torch_npu/profiler").glob("*.py"))


def test_the_names_in_the_advice_are_there(wheel: Tree) -> None:
    """What an Ascend user is told to call or set: torch.npu's, torch_npu's, and its backend of torch.compile."""
    said = [*WORDS[Vendor.ASCEND].values(), *(fix for fixes in FIXES_OF[Vendor.ASCEND].values() for fix in fixes)]
    named = {name for text in said for name in re.findall(r"(?:torch\.npu|torch_npu)(?:\.\w+)+", text)}
    assert len(named) == 10
    sources = [path.read_text(encoding="utf-8") for path in (wheel.root / "torch_npu").rglob("*.py")]
    for name in sorted(named):
        last = re.escape(name.rpartition(".")[2])
        assert any(re.search(rf"(?:class|def|torch_npu\.|\"){last}\b", source) for source in sources), name
    assert any('compiler_name = "npugraphs"' in source for source in sources)


def test_a_name_that_is_not_there_is_missed(tree: Tree) -> None:
    """The search does not find what does not exist."""
    with pytest.raises(Missing):
        tree.find(PROFILER, "profile_everything")
    assert "profile_everything" not in parameters(tree.find(PROFILER, "profile")[1])
    assert tree.attribute(*tree.find(PROFILER, "ProfilerLevel"), "Level9") is None


def test_the_hook_names_its_vendor_in_one_file_only() -> None:
    """No other file of the hook spells a module of torch_npu, but for its launcher's, and none imports it."""
    hook = Path(npu_child.__file__).parent
    spelled = {
        path.name
        for path in hook.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("torch_npu."))
        or (isinstance(node, ast.Import | ast.ImportFrom) and "torch_npu" in ast.unparse(node))
    }
    assert spelled == {"npu_names.py", "job.py"}


def test_the_calls_swallow_their_exceptions(wheel: Tree) -> None:
    """All that the hook calls is decorated so: only what was written tells of success."""
    owner = wheel.find(PROFILER, "profile")[1]
    called = [function(owner, name) for name in ("start", "step", "stop")]
    called += [wheel.find(PROFILER, "tensorboard_trace_handler")[1], wheel.find(PROFILER + ".profiler", "analyse")[1]]
    assert all(decorators(node) == ["no_exception_func()"] for node in called)
    swallow = ast.unparse(wheel.find(PROFILER + ".analysis.prof_common_func._utils", "no_exception_func")[1])
    assert "except Exception" in swallow
    assert "print_error_msg" in swallow


def test_three_steps_of_the_schedule_are_one_window(wheel: Tree) -> None:
    """The vendor's own schedule, taken from its text and run alone: warm up, record and save, then nothing for ever."""
    module = wheel.module(PROFILER + ".scheduler")
    wanted = [node for node in module.body if isinstance(node, ast.ClassDef)]
    names: dict[str, Any] = {"Enum": Enum, "print_warn_msg": pytest.fail}
    exec(compile(ast.Module(wanted, []), "scheduler", "exec"), names)  # noqa: S102 - the text under test
    schedule, action = names["Schedule"](wait=0, warmup=1, active=1, repeat=1), names["ProfilerAction"]
    assert [schedule(step) for step in range(5)] == [action.WARMUP, action.RECORD_AND_SAVE, *[action.NONE] * 3]


def test_what_each_step_does(wheel: Tree) -> None:
    """Begin of the folder, of the recording, its end with the files written; and the stop after that does nothing."""
    owner = wheel.find(PROFILER + "._profiler_action_controller", "ProfActionController")[1]
    table = next(n for n in ast.walk(function(owner, "_init_action_map")) if isinstance(n, ast.Dict))
    does = {ast.unparse(key): ast.unparse(value) for key, value in zip(table.keys, table.values, strict=True) if key}
    inner = "self.prof_inst."
    action = "ProfilerAction."
    assert does[f"({action}NONE, {action}WARMUP)"] == f"[{inner}init_trace, {inner}warmup_trace]"
    assert does[f"({action}WARMUP, {action}RECORD_AND_SAVE)"] == f"[{inner}start_trace]"
    ends = f"[{inner}stop_trace, {inner}finalize_trace, self._trace_ready]"
    assert does[f"({action}RECORD_AND_SAVE, {action}NONE)"] == ends
    assert f"({action}NONE, None)" not in does
    # Stopped while it warms up it deletes the folder that the process's one creator names, which may be the job's.
    assert "delete_prof_dir" in does[f"({action}WARMUP, None)"]


def test_begin_and_end_are_told_by_one_flag(wheel: Tree) -> None:
    """The device is waited for at the stop; the flag is up from the folder's making to the end of the last file."""
    owner = wheel.find(INTERFACE, "_ProfInterface")[1]
    stop = function(owner, "stop_trace")
    assert calls(stop)[0] == "torch.npu.synchronize"
    assert "ProfPathCreator().create_prof_dir" in calls(function(owner, "init_trace"))
    creator = wheel.find(PROFILER + "._profiler_path_creator", "ProfPathCreator")[1]
    assert decorators(creator) == ["Singleton"]
    assert "self.is_prof_inited = True" in ast.unparse(function(creator, "create_prof_dir"))
    assert "ProfPathCreator().is_prof_inited = False" in ast.unparse(function(owner, "finalize_trace"))
    dynamic = wheel.find(PROFILER + ".dynamic_profile", "_DynamicProfile")[1]
    assert decorators(dynamic) == ["Singleton"]
    box = wheel.find(PROFILER + ".analysis.prof_common_func._singleton", "Singleton")[1]
    assert "_instance" in members(box)


def test_a_handler_leaves_the_path_to_others_only_when_remembered(wheel: Tree) -> None:
    """The handler overwrites where the next profile of the process goes; without one the start does."""
    handler = ast.unparse(wheel.find(PROFILER, "tensorboard_trace_handler")[1])
    assert "ProfPathCreator().init(worker_name=worker_name, dir_name=dir_name)" in handler
    start = ast.unparse(function(wheel.find(PROFILER, "profile")[1], "start"))
    assert re.search(r"if not self.on_trace_ready:\s+ProfPathCreator\(\).init\(export_only_mode=True\)", start)


def test_only_one_module_prints_in_the_job(wheel: Tree) -> None:
    """Of all that runs in the job: what the hook keeps quiet is all there is."""
    folder = wheel.root / "torch_npu" / "profiler"
    in_job = list(folder.glob("*.py")) + list((folder / "analysis" / "prof_common_func").glob("*.py"))
    printing = {path.name for path in in_job if "print" in calls(ast.parse(path.read_text(encoding="utf-8")))}
    # The task manager prints progress, in the analysis only.
    assert printing - {"_task_manager.py"} == {"_constant.py"}
    for name in ("print_info_msg", "print_warn_msg", "print_error_msg"):
        assert "print" in calls(wheel.find(CONSTANT, name)[1])


def test_who_else_may_profile(wheel: Tree) -> None:
    """The environment variables by which the vendor's other tools reserve the profiler."""
    constants = wheel.find(CONSTANT, "Constant")
    names = {name for name, _ in npu_guard._OTHERS}
    assert {wheel.attribute(*constants, key) for key in ("MSPROF_STATIC_ENV", "MSPROF_DYNAMIC_ENV")} <= names
    asked = ast.unparse(wheel.find(PROFILER + "._non_intrusive_profile", "_NonIntrusiveProfile")[1])
    assert all(
        f"getenv('{name}'" in asked for name in ("PROF_CONFIG_PATH", "KINETO_USE_DAEMON", "MSMONITOR_USE_DAEMON")
    )


def test_what_a_window_leaves_behind(wheel: Tree) -> None:
    """Names of folders and files; characters of paths; the marker that is written whatever has failed."""
    constants = wheel.find(CONSTANT, "Constant")
    assert wheel.attribute(*constants, "OUTPUT_DIR") == npu_child.OUTPUT
    assert (
        wheel.attribute(*wheel.find(CONSTANT, "DbConstant"), "DB_ASCEND_PYTORCH_PROFILER") == npu_child.DATABASE + ".db"
    )
    parser = ast.unparse(wheel.find(PROFILER + ".analysis.prof_view.prof_db_parse._db_parser", "DbParser")[1])
    assert f"f'{npu_child.DATABASE}_{{ProfilerConfig().rank_id}}.db'" in parser
    made = ast.unparse(
        function(wheel.find(PROFILER + "._profiler_path_creator", "ProfPathCreator")[1], "create_prof_dir")
    )
    assert "{}_{}_ascend_pt" in made
    written = ast.unparse(function(wheel.find(INTERFACE, "_ProfInterface")[1], "_dump_profiler_info"))
    assert "'profiler_info.json'" in written
    assert "profiler_info_{rank_id}.json" in written
    assert wheel.attribute(*constants, "END_INFO") == "end_info"
    check = ast.unparse(wheel.find("torch_npu.utils._path_manager", "PathManager")[1])
    pattern = re.search(r"pattern = '(.+)'", check)
    assert pattern
    theirs = re.compile(ast.literal_eval(f"'{pattern[1]}'"))
    assert all(
        theirs.fullmatch(character) for character in map(chr, range(128)) if npu_scratch._ALLOWED.fullmatch(character)
    )


def test_done_means_nothing_and_msprof_is_needed(wheel: Tree) -> None:
    """The marker comes after a caught failure; the analysis looks for msprof by name, and takes the asked format."""
    parser = function(
        wheel.find(PROFILER + ".analysis._profiling_parser", "ProfilingParser")[1], "analyse_profiling_data"
    )
    body = ast.unparse(parser)
    assert re.search(r"try:\s+self.run_parser\(\)\s+except Exception", body)
    assert body.index("except Exception") < body.index("self.generate_parser_done_file()")
    export = ast.unparse(wheel.find(PROFILER + ".analysis.prof_view.cann_parse._cann_export", "CANNExportParser")[1])
    assert "shutil.which('msprof')" in export
    assert "'--type=db'" in export


def test_the_walk_through_cann(wheel: Tree) -> None:
    """At the end of each profile the whole of CANN's folder is walked for a version; the hook has that done once."""
    dump = function(wheel.find(INTERFACE, "_ProfInterface")[1], "_dump_profiler_info")
    assert "get_cann_version" in calls(dump)
    assert "os.walk" in calls(wheel.find(INTERFACE, "get_cann_version")[1])
    assert not wheel.find(INTERFACE, "get_cann_version")[1].args.args


def test_torch_loads_it_by_itself(wheel: Tree) -> None:
    """An entry point of torch's: in a job torch_npu is there once torch is. And its launcher by its two names."""
    (entry,) = wheel.root.glob("*.dist-info/entry_points.txt")
    assert re.search(r"torch_npu_run = torch_npu.distributed.run:", entry.read_text())
    assert "torch_npu_run" in job._LAUNCHERS
    assert "torch_npu.distributed.run" in job._LAUNCHER_MODULES
    assert re.search(r"\[torch.backends\]\s+torch_npu = torch_npu:_autoload", entry.read_text())


def test_a_request_may_ask_for_each_metric() -> None:
    """The sets a request may name are among the names that are checked above."""
    assert set(METRICS) <= set(USED)
