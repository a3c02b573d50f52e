"""``roofwatch self-test``: a short job end to end on this node."""

from __future__ import annotations

import sys

import click

from roofwatch.cli import errors, trusting

EPILOG = """\b
Examples:
  roofwatch self-test
  roofwatch self-test --python /opt/train/bin/python
  roofwatch self-test --store store.example:7431 --tls-ca ca.pem \\
      --tls-cert gpu-07.pem --tls-key gpu-07.key
\b
Trains for ten seconds on the first accelerator, or the CPU, with an agent of
its own and a store of its own; everything is stopped and removed afterwards.
With --store its windows go to a running store and stay there, as model
roofwatch-self-test: the certificate or token needs the roles ingest and read.
\b
Exit code 0: every stage worked. 1: one did not; its line says why and what to
do. 3: the store that was named does not answer.
"""


@click.command("self-test", epilog=EPILOG)
@click.option("--python", default=sys.executable, metavar="PATH", help="The job's Python.  [default: this one]")
@click.option("--store", metavar="HOST:PORT", help="A store that runs.  [default: one of its own]")
@click.option("--seconds", type=click.FloatRange(2, 600), default=10, show_default=True, help="How long to train.")
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="cuda, npu or cpu.")
@trusting.options(hidden=True)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(python: str, store: str | None, seconds: float, device: str, form: str) -> int:
    """Run a short job end to end on this node, and say of each stage whether it worked and how long it took."""
    from roofwatch.cli import selftest  # noqa: PLC0415  # --help must not pay for it
    from roofwatch.cli.render import json, text  # noqa: PLC0415
    from roofwatch.model.answer import SCHEMA_VERSION  # noqa: PLC0415

    def tell(stage: selftest.Stage) -> None:
        if form == "json":
            return
        click.echo(
            f"{'ok' if stage.ok else 'fail':<4}  {stage.stage:<10}  {stage.seconds:6.2f} s  {text.clean(stage.detail)}"
        )
        if stage.advice:
            click.echo(f"{'':<28}→ {text.clean(stage.advice)}")

    if not store:
        trusting.forget()
    stages = selftest.run(selftest.Asked(python, store or "", seconds, device), tell)
    if form == "json":
        query = {"name": "self-test", "python": python, "store": store, "seconds": seconds, "device": device}
        rows = [stage.as_json() for stage in stages]
        click.echo(json.render({"schema_version": SCHEMA_VERSION, "query": query, "rows": rows}), nl=False)
    return errors.DONE if all(stage.ok for stage in stages) else errors.FAILED
