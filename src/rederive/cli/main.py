"""`rederive`: the entry point of the command line and the list of its commands."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Final

import typer

from rederive import __version__
from rederive.boundary import DEBUG, is_debugging, to_public_error
from rederive.cli import (
    client_commands,
    program_commands,
    run_command,
    service_commands,
    store_commands,
    stream_command,
)
from rederive.errors import Internal

USER_ERROR: Final = 2
"""The exit code of an error of the user: a program, data, options or files."""
INTERNAL: Final = 70
"""The exit code of a bug of ours: EX_SOFTWARE of sysexits.h."""

COMMANDS: Final = (
    program_commands.check,
    program_commands.explain,
    program_commands.advise,
    run_command.run,
    stream_command.stream,
    store_commands.log,
    store_commands.backup,
    store_commands.restore,
    store_commands.refresh,
    program_commands.query,
    program_commands.why,
    service_commands.init,
    service_commands.serve,
    client_commands.watch,
    client_commands.apply,
)

# `main` prints errors. Typer's own tracebacks show local variables, and with them rows and tokens.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Incremental view maintenance: exactly which rows enter and leave each view.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Handle the options of every command."""
    if debug:
        os.environ[DEBUG] = "1"
    if version:
        typer.echo(f"rederive {__version__}")
        raise typer.Exit


for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run a command. An error goes to standard error, and nothing to standard output.

    The exit code is 2 for an error of the user and 70 (EX_SOFTWARE) for a bug of ours. With --debug or REDERIVE_DEBUG=1 the
    traceback is printed, too.
    """
    try:
        app()
    except BrokenPipeError:  # the reader of a pipe ended, as in `rederive log ... | head`
        # Python flushes standard output once more at exit, and would report the broken pipe.
        sys.stderr.close()
        sys.exit(0)
    except Exception as raised:
        error = to_public_error(raised)
        if is_debugging():
            traceback.print_exception(raised)
        sys.stderr.write(f"{error}\n")
        sys.exit(INTERNAL if isinstance(error, Internal) else USER_ERROR)


if __name__ == "__main__":
    main()
