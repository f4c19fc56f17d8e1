"""`rederive`: the entry point of the command line and the list of its commands."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from rederive import __version__
from rederive.boundary import DEBUG, is_debugging, to_public_error
from rederive.errors import Internal

USER_ERROR: Final = 2
"""The exit code of an error of the user: a program, data, options or files."""
INTERNAL: Final = 70
"""The exit code of a bug of ours: EX_SOFTWARE of sysexits.h."""

# By name: the module, and what `rederive --help` says. A module is imported when its command runs, so that `--help` and the
# completion of a shell need not wait for the engine.
COMMANDS: Final = {
    "run": ("run_command", "Evaluate a program, apply transactions, print the exact change of every monitored view."),
    "shell": ("shell_command", "Open a prompt for statements, rules and queries, in SQL and Datalog."),
    "query": ("query_command", "Print the rows of a program, a store or a service that match."),
    "why": ("why_command", "Explain why a row is in a view, or why it is not."),
    "check": ("program_commands", "Check a program. Print its relations, strata and monitored views."),
    "explain": ("program_commands", "Print how each view is maintained, and the propagation network."),
    "advise": ("program_commands", "Print which updates of remote relations stored views can take without reading a source."),
    "log": ("store_commands", "Print the changes of a store's committed versions."),
    "backup": ("store_commands", "Copy a store at its last committed version."),
    "restore": ("store_commands", "Create a store from a backup."),
    "stream": ("stream_command", "Ingest a stream into a store, one transaction for each micro-batch."),
    "refresh": ("store_commands", "Follow the tables in place to their last commits."),
    "init": ("service_commands", "Create a project: a folder with a rederive.toml and a program."),
    "serve": ("service_commands", "Serve a project over HTTP, with a page to look at."),
    "watch": ("client_commands", "Show a view of a service as it changes."),
    "apply": ("client_commands", "Commit the transactions of a file at a service, each exactly once."),
}


class _Command(TyperCommand):
    """A command whose help shows no type for options that are switches."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_labels(super().get_params(ctx))


class _CommandGroup(TyperGroup):
    """The list of commands. Each has a stand-in, which knows its name and its help, until it runs or is completed."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_labels(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name is not None else command, rest


def _without_labels(params: list[Any]) -> list[Any]:
    for one in params:
        if getattr(one, "is_bool_flag", False):
            one.metavar = ""
    return params


def load_command(name: str) -> Any:
    """Import a command."""
    module = import_module(f"rederive.cli.{COMMANDS[name][0]}")
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    one.command(name, cls=_Command)(getattr(module, name))
    return typer.main.get_command(one)


# `main` prints errors. Typer's own tracebacks show local variables, and with them rows and tokens.
app = typer.Typer(
    cls=_CommandGroup,
    no_args_is_help=True,
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


for _name, (_, _help) in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


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
