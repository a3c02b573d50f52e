"""A group of commands that names the one that was probably meant."""

from __future__ import annotations

import click


class Guessing(click.Group):
    """As click's group, but a mistyped command is answered with the nearest there is."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named.

        Raises:
            click.UsageError: there is none of that name; says which one is near.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415  # only for a mistake

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            if not near or "mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None
