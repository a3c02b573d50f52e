"""``roofwatch``: the group of commands. A command's module is imported only when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from roofwatch.cli import errors, trusting
from roofwatch.cli.guessing import Guessing

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
READING = {
    "nodes": "Machines that sent windows.",
    "processes": "Registered processes and what their windows cost.",
    "windows": "The windows taken, one a line.",
    "top": "The kernels that eat the time, and why.",
    "roofline": "The kernels under the roof, as a plot and a table.",
    "timeline": "Where the devices waited, and for what.",
    "diagnose": "What to work on first, why, and what helps.",
    "ranks": "The ranks of a job side by side, and the straggler.",
    "compare": "The same work on two vendors, versions or nodes.",
    "regressions": "What became slower from one version to the next.",
    "padding": "What padding takes, and what would save it.",
    "whatif": "What fewer bits, other ceilings or another device would change.",
    "report": "All of it as one page to read and pass on.",
    "analyze": "The same answer from one trace file, without a store.",
}
ACTING = {
    "run": "Run a job so that the agent can take windows of it.",
    "capture": "Take windows now, of one rank or all, on all nodes.",
    "trace": "Kept traces: list them, fetch one, how to open it.",
    "agent": "The daemon of a node: takes windows and sends records.",
    "store": "The server that keeps the records.",
    "import": "Put a trace file into the store.",
    "export": "Records as Parquet, CSV or JSON; a window for Insight.",
    "devices": "Known devices and their peaks; measure this CPU's.",
    "config": "The settings of agent and store, and where each came from.",
    "doctor": "Check this machine and say what to do.",
    "self-test": "A short job end to end on this node, stage by stage.",
    "demo": "Everything at once on this machine, in a minute.",
    "certs": "A private CA: certificates and tokens for agents and stores.",
    "completion": "Print a completion script for your shell.",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(Guessing):
    """A group that knows its commands by name and loads each on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, reading commands first."""
        del ctx
        return [*READING, *ACTING]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name == "prune":  # of a store; a name of its own for who looks for it here
            store = self.get_command(ctx, "store")
            return store.get_command(ctx, cmd_name) if isinstance(store, click.Group) else None
        if cmd_name not in READING and cmd_name not in ACTING:
            return None
        # "import" is a keyword, so modules that clash with one carry an underscore.
        name = f"{cmd_name}_" if cmd_name == "import" else cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f"roofwatch.cli.commands.{name}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and help of the commands, without importing any."""
        found = [
            CompletionItem(name, help=text)
            for name, text in (READING | ACTING).items()
            if name.startswith(incomplete) and not incomplete.startswith("-")
        ]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both lists, without importing any command."""
        del ctx
        for title, commands in (("Reading", READING), ("Acting", ACTING)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version  # noqa: PLC0415  # 20 ms that --help must not pay

    click.echo(f"roofwatch {version('roofwatch')}")
    ctx.exit()


def _of_a_command(option: str, value: str) -> Callable[[Decorated], Decorated]:
    """An option that commands have, refused before them with a word about where it belongs."""

    def refuse(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> None:
        if given is not None:
            raise click.UsageError(f"{option} belongs after the command: roofwatch top {option} {value}")

    return click.option(option, hidden=True, expose_value=False, is_eager=True, callback=refuse)


@click.group(
    cls=Commands,
    context_settings=CONTEXT,
    epilog="Ask a store: roofwatch top --store HOST:PORT (or ROOFWATCH_STORE). Start with: roofwatch demo",
)
@trusting.options(hidden=False)
@_of_a_command("--store", "HOST:PORT")
@_of_a_command("--db", "URL")
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def cli() -> None:
    """Which kernels eat this node's time, and why: always-on profiling for mixed fleets."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The program: 0 done, 1 a finding or failure, 2 usage, 3 unreachable, 4 incomplete data."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the locale cannot show must not end in a traceback
            stream.reconfigure(errors="backslashreplace")
    stdout = sys.stdout
    try:
        result = cli.main(args=arguments, prog_name="roofwatch", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        code = errors.exit_code(error)
        if code is None:
            raise
        sys.exit(code)
    except SystemExit:
        if sys.stdout is not stdout:  # how click leaves after a closed pipe
            sys.exit(errors.pipe_closed())
        raise
    sys.exit(result if isinstance(result, int) else errors.DONE)


if __name__ == "__main__":
    main()
