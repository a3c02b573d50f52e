"""The program as a user meets it: help, exit codes, streams, pipes, mistakes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.cli import folders
from roofwatch.cli.main import ACTING, READING, cli
from roofwatch.model.devices import entries
from roofwatch.model.errors import RoofwatchError
from roofwatch.store.config import default_url

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
COMMANDS = [*READING, *ACTING]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def only_a_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on stderr; nothing on stdout, no traceback."""
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_help_lists_every_command_and_imports_none(roofwatch: Roofwatch) -> None:
    """--help names all commands; neither SQLAlchemy, grpc, numpy nor any command is imported for it."""
    done = roofwatch("--help")
    assert done.returncode == 0
    assert re.findall(r"^  ([a-z][a-z-]*)  ", done.stdout, re.MULTILINE) == COMMANDS
    program = (
        "import sys\nfrom roofwatch.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('sqlalchemy', 'grpc', 'google', 'numpy', 'torch', 'alembic', 'roofwatch.cli.commands')\n"
        "sys.exit(repr([name for name in sys.modules if name.startswith(heavy)]) if any(\n"
        "    name.startswith(heavy) for name in sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(roofwatch: Roofwatch, name: str) -> None:
    """The first words of a command's help are those in the list of commands, and its help shows how to call it."""
    done = roofwatch(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"roofwatch {name}" in done.stdout.split("Examples:")[1]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_document_is_complete() -> None:
    """docs/cli.md has a section for each command and names each of its options."""
    section_of = re.compile(r"^### `roofwatch ([^`]+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
    sections = dict(section_of.findall(DOCUMENT.read_text(encoding="utf-8")))
    missing = []
    for words, command in walk(cli, ()):
        section = sections.get(" ".join(words))
        if section is None:
            missing.append(" ".join(words))
            continue
        options = [o for p in command.params for o in p.opts if o.startswith("--") and not getattr(p, "hidden", False)]
        missing += [f"{' '.join(words)} {o}" for o in options if f"`{o}" not in section and o not in section]
    assert missing == []
    known = {" ".join(words) for words, _ in walk(cli, ())}
    assert set(sections) <= known, "docs/cli.md describes a command that is not there"


def test_the_readme_counts_the_devices() -> None:
    """As many as the data file has."""
    readme = (DOCUMENT.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"The peaks of [{len(entries())} devices]" in readme


def walk(group, words):  # type: ignore[no-untyped-def]
    """Every command that is no group, with the words that call it."""
    import click  # noqa: PLC0415

    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from walk(command, (*words, name))
        else:
            yield (*words, name), command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["top", "--nosuch"], "No such option"),
        (["top", "--since", "3y"], "neither a duration"),
        (
            ["top", "--since", "3000-01-01"],
            "'--since': '3000-01-01' is out of range: times from 1677-09-22 to 2262-04-11",
        ),
        (["nodes", "--until", "2500-01-01"], "'--until': '2500-01-01' is out of range: times from 1677"),
        (["windows", "--since", "999999999d"], "'--since': '999999999d' is out of range: times from 1677"),
        (["top", "--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["top", "--label", "novalue"], "key=value"),
        (["top", "--format", "xml"], "'xml' is not one of"),
        (["top", "--limit", "-1"], "not in the range"),
        (["top", "--store", "nowhere"], "is not an address"),
        (["top", "--store", "127.0.0.1:1", "--db", "sqlite:///x.db"], "exclude each other"),
        (["top", "--db", "nonsense://x"], ""),
        (["run"], "Missing argument"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_usage_mistakes_exit_2(roofwatch: Roofwatch, arguments: list[str], words: str) -> None:
    """A wrong request: exit 2, told on stderr, nothing on stdout, no traceback."""
    done = roofwatch(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["tpo"], "top"), (["store", "serv"], "serve"), (["devices", "lst"], "list")]
)
def test_a_mistyped_command_is_guessed(roofwatch: Roofwatch, arguments: list[str], meant: str) -> None:
    """Exit 2, and the one that was meant; far from any name nothing is guessed."""
    done = roofwatch(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Did you mean '{meant}'?" in done.stderr
    assert "mean" not in roofwatch("nosuch").stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["store", "serve", "--listen", "127.0.0.1:0", "--db", "sqlite:////nonexist/a/b.db"], "--db"),
        (["agent", "--socket", "/nonexist/a/b.sock"], "--socket"),
        (["agent", "--state", "/nonexist/a/b"], "--state"),
        (["import", "x.json", "--db", "/nonexist/a/b.db"], "--db"),
    ],
)
def test_no_tree_of_folders_is_made(roofwatch: Roofwatch, arguments: list[str], named: str) -> None:
    """The last folder of a path is made, several are a typing mistake: exit 1, and nothing is made."""
    done = roofwatch(*arguments)
    assert done.returncode == 1
    assert f"there is no /nonexist{'/a' if named == '--state' else ''}: check {named}" in only_a_sentence(done)
    assert not Path("/nonexist").exists()


def test_the_last_folder_and_the_usual_ones_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose parent is there, those that nobody typed, and file names without a folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no" / "state"))
    folders.check(tmp_path / "new", "--state", tmp_path / "usual" / "far" / "off")
    folders.check(tmp_path / "usual" / "far" / "off", "--state", tmp_path / "usual" / "far" / "off")
    for url in (None, default_url(), "t.db", "sqlite:///t.db", f"sqlite:///{tmp_path}/new/t.db?timeout=1", "x://y/z"):
        folders.check_database(url)
    with pytest.raises(RoofwatchError, match="check --db"):
        folders.check_database(f"sqlite:///{tmp_path}/no/such/t.db")


@pytest.mark.parametrize("query", ["nodes", "processes", "windows", "top", "roofline"])
def test_no_store_exits_3(roofwatch: Roofwatch, query: str) -> None:
    """Nobody listens: one sentence that says where and what to do."""
    with socket.socket() as holder:  # bound and not listening: nobody else can take the port meanwhile
        holder.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        done = roofwatch(query, env={"ROOFWATCH_STORE": address})
    assert done.returncode == 3
    sentence = only_a_sentence(done)
    assert address in sentence
    assert "roofwatch store serve" in sentence


def test_what_is_no_store_exits_3(roofwatch: Roofwatch) -> None:
    """Something else listens there, and says nothing that a store would."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        port = other.getsockname()[1]
        program = (
            "import socket, sys\n"
            f"s = socket.socket(fileno={other.fileno()})\n"
            "while True:\n    c, _ = s.accept()\n    c.sendall(b'HTTP/1.1 400 Bad\\r\\n\\r\\n')\n    c.close()\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], pass_fds=[other.fileno()]) as server:
            done = roofwatch("top", "--store", f"127.0.0.1:{port}")
            server.kill()
    assert done.returncode == 3
    only_a_sentence(done)


def test_no_database_exits_3(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """A database that is not there is not made by asking."""
    done = roofwatch("top", "--db", f"sqlite:///{tmp_path}/none.db")
    assert done.returncode == 3
    assert "none.db" in only_a_sentence(done)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete(roofwatch: Roofwatch, shell: str) -> None:
    """A script is printed; what it calls answers with the command's name, without importing a command."""
    assert "_ROOFWATCH_COMPLETE" in roofwatch("completion", shell).stdout
    env = {"COMP_WORDS": "roofwatch roofl", "COMP_CWORD": "1" if shell != "fish" else "roofl"}
    done = roofwatch(env={**env, "_ROOFWATCH_COMPLETE": f"{shell}_complete"})
    assert "roofline" in done.stdout


def test_a_reader_that_leaves_is_no_failure_to_tell(roofwatch: Roofwatch) -> None:
    """As in ``roofwatch … | head -0``: no word on stderr, the exit code of a closed pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-m", "roofwatch.cli.main", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True
    ) as done:
        os.close(writer)
        assert done.stderr
        assert done.stderr.read() == ""
    assert done.returncode == 128 + signal.SIGPIPE
    del roofwatch


def test_an_interrupt_while_modules_are_imported_shows_no_traceback(tmp_path: Path) -> None:
    """Ctrl-C right after the start is an end, not a bug; click is replaced by a module that is interrupted."""
    (tmp_path / "click.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from roofwatch.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_full_disk_is_told(roofwatch: Roofwatch) -> None:
    """/dev/full refuses every byte: exit 1 and one sentence."""
    del roofwatch
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", "completion", "bash"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--store", "--db"])
def test_a_commands_option_before_it_is_told_where_it_belongs(roofwatch: Roofwatch, option: str) -> None:
    """Not that there is none of that name."""
    done = roofwatch(option, "x", "top")
    assert done.returncode == 2
    assert f"{option} belongs after the command: roofwatch top {option}" in done.stderr


def test_the_namespace_is_a_program(tmp_path: Path) -> None:
    """``python -m roofwatch``."""
    command = [sys.executable, "-m", "roofwatch", "top", "--store", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, "'nowhere' is not an address" in done.stderr) == (2, True)


def test_prune_has_a_short_name(roofwatch: Roofwatch) -> None:
    """Who looks for it beside export and top finds that of the store."""
    said = [roofwatch(*words, "--help").stdout for words in (["prune"], ["store", "prune"])]
    assert "Remove what is older" in said[0]
    assert said[0].partition("\n")[2] == said[1].partition("\n")[2]


def test_version(roofwatch: Roofwatch) -> None:
    """The installed version, in one line."""
    assert re.fullmatch(r"roofwatch \d+\.\d+\.\d+\S*\n", roofwatch("--version").stdout)


def test_a_wide_terminal_is_used(traces: Path, tmp_path: Path) -> None:
    """On a terminal of 150 columns the table is wider than 80 and not wider than 150; stdout of a pipe keeps to 80."""
    import fcntl  # noqa: PLC0415
    import pty  # noqa: PLC0415
    import struct  # noqa: PLC0415
    import termios  # noqa: PLC0415

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    trace = traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    done = subprocess.Popen(
        [sys.executable, "-m", "roofwatch.cli.main", "analyze", str(trace), "--top", "5"],
        stdout=slave, stderr=subprocess.DEVNULL, cwd=tmp_path, env=env,
    )  # fmt: skip
    os.close(slave)
    drawn = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(master, 65536):
            drawn += part
    os.close(master)
    assert done.wait(30) == 0
    assert 80 < max(map(len, drawn.decode().splitlines())) <= 150
    assert b"\x1b" not in drawn


def test_sentences_fit_a_terminal_and_stay_whole_in_a_log(tmp_path: Path) -> None:
    """Where stderr is a terminal of 60 columns a long sentence is broken between words, its path left whole."""
    name = "a" * 70 + ".json"
    program = [sys.executable, "-m", "roofwatch.cli.main", "analyze", str(tmp_path / name)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.count("\n") == 1
    reader, terminal = pty.openpty()
    with os.fdopen(reader, "rb", buffering=0) as shown:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        subprocess.run(program, stdout=subprocess.DEVNULL, stderr=terminal, timeout=60, check=False)
        told = shown.read(4096).decode()
        os.close(terminal)
    lines = told.split("\r\n")
    assert len(lines) > 2
    assert all(len(line) <= 60 or str(tmp_path / name) in line for line in lines)
    assert " ".join(told.split()) == " ".join(done.stderr.split())
