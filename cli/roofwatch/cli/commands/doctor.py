"""``roofwatch doctor``: check this machine and say what to do."""

from __future__ import annotations

import sys

import click

from roofwatch.cli import errors, options, trusting

EPILOG = """\b
Examples:
  roofwatch doctor
  roofwatch doctor --python /opt/train/bin/python --format json
\b
Exit code 1 when a check fails; a warning does not fail.
"""


@click.command("doctor", epilog=EPILOG)
@click.option("--python", default=sys.executable, metavar="PATH", help="The job's Python.  [default: this one]")
@click.option("--socket", metavar="PATH", help="The agent's socket.  [env var: ROOFWATCH_SOCKET]")
@click.option("--store", envvar="ROOFWATCH_STORE", show_envvar=True, metavar="HOST:PORT", help="The store to look for.")
@click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads of a CPU job.  [default: its torch's number]"
)
@trusting.options(hidden=True)
@options.output
def command(python: str, socket: str | None, store: str | None, threads: int | None, form: str) -> int:
    """Check this machine and say what to do.

    Python and torch, the agent and its socket, the spool, the store, clocks, settings, drivers, limits.
    """
    from roofwatch.cli import doctor, showing  # noqa: PLC0415  # --help must not pay for it
    from roofwatch.cli.render import listing  # noqa: PLC0415
    from roofwatch.hook.protocol import socket_path  # noqa: PLC0415
    from roofwatch.model.answer import SCHEMA_VERSION  # noqa: PLC0415
    from roofwatch.store.config import DEFAULT_ADDRESS  # noqa: PLC0415

    asked = doctor.Asked(python, socket or socket_path(), store or DEFAULT_ADDRESS, threads)
    checks = doctor.run(asked)
    answer = {
        "schema_version": SCHEMA_VERSION,
        "query": {"name": "doctor", "python": python, "socket": asked.socket, "store": asked.store},
        "rows": [check.as_json() for check in checks],
    }
    showing.show(answer, form, ("check", "status", "detail", "advice"), listing.checks, empty="nothing was checked.")
    return errors.FAILED if any(check.status == "fail" for check in checks) else errors.DONE
