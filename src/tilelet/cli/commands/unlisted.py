"""Commands that help does not list: earlier spellings, and those for work on Tilelet itself."""

from __future__ import annotations

from pathlib import Path

from tilelet import __version__
from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import PageOptions
from tilelet.cli.values import folder
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import BadFlag
from tilelet.scripts import exit_codes, interrupt


@dataclass(frozen=True, kw_only=True)
class ReportCommand(PageOptions):
    """Write the page of a run directory; the same as `tilelet view RUN_DIR --html FILE`."""

    directory: str = argument("what `tilelet profile` wrote", "RUN_DIR")

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.page import report_command

        return report_command(self)


@dataclass(frozen=True, kw_only=True)
class ListCommand(Command):
    """List the programs that ship with Tilelet; `tilelet examples` lists them too."""

    def run(self) -> int:
        from tilelet.cli.examples import list_models
        from tilelet.cli.messages import print_text

        print_text(list_models())
        return exit_codes.PASSED


@dataclass(frozen=True, kw_only=True)
class VersionCommand(Command):
    """Print the version; the same as `tilelet --version`."""

    def run(self) -> int:
        print(f"tilelet {__version__}")
        return exit_codes.PASSED


@dataclass(frozen=True, kw_only=True)
class PageMaker(Command):
    """Commands that generate pages, or compare them with the code."""

    write: bool = option("write the pages", rivals="what!")
    check: bool = option("compare the pages with the code", rivals="what!")
    dir: Path = option(
        "folder of the pages (docs)", default=Path("docs"), parse=folder, metavar="DIR"
    )


@dataclass(frozen=True, kw_only=True)
class DocsCommand(PageMaker):
    """Generate the reference pages.

    Examples:
      tilelet docs --write     write docs/ops.md, docs/errors.md and the other generated pages
      tilelet docs --check     exit 1 if they are not up to date
    """

    def run(self) -> int:
        from tilelet.cli.pages import docs_command

        return docs_command(self.dir, write=self.write)


@dataclass(frozen=True, kw_only=True)
class WalkthroughCommand(PageMaker):
    """Generate the page about the Qwen3 programs, step by step.

    Examples:
      tilelet walkthrough --write                  measure everything, write docs/qwen3.md (minutes)
      tilelet walkthrough --write --keep-cpu       only what is modelled (seconds)
      tilelet walkthrough --check                  whether its modelled figures are up to date
      tilelet walkthrough --check --only scope1    of one program; several with commas

    CPU times differ from run to run, so they are not checked. Exit code 1: the page is not up to
    date.
    """

    ladders: bool = option("write what `tilelet advise --fix` does alone", rivals="what!")
    keep_cpu: bool = option("with --write: keep the CPU times of the page")
    only: str = option("with --check or --ladders: these programs only", default="", metavar="A,B")

    def run(self) -> int:
        from tilelet.cli.blas import use_one_blas_thread

        use_one_blas_thread()
        with interrupt.defer():
            from tilelet.cli import walkthrough

        names = [name for name in self.only.split(",") if name]
        unknown = [name for name in names if name not in walkthrough.PROGRAMS]
        if unknown:
            known = ", ".join(walkthrough.PROGRAMS)
            raise BadFlag(f"`--only`: `{unknown[0]}` is none of {known}")
        if names and self.write:
            raise BadFlag("`--only` goes with `--check` and `--ladders`")
        if self.ladders:
            return walkthrough.write_ladders(self.dir, names)
        if self.check:
            return walkthrough.check_page(self.dir, names)
        return walkthrough.write_page(self.dir, keep_cpu=self.keep_cpu)
