"""``roofwatch completion``: the script a shell needs to complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

EPILOG = """\b
Examples:
  eval "$(roofwatch completion bash)"
  roofwatch completion zsh > ~/.zfunc/_roofwatch
  roofwatch completion fish | source
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for your shell."""
    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"no completion for {shell}.")
    # bash's version check of click's source() starts a bash; the template alone is what is asked for.
    writer = complete(ctx.find_root().command, {}, "roofwatch", "_ROOFWATCH_COMPLETE")
    click.echo(writer.source_template % writer.source_vars())
