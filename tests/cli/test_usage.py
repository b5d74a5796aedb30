"""Every command and option: wrong usage exits with 2 everywhere, with the same message."""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from tilelet.cli.commands import COMMANDS, listed_commands
from tilelet.cli.commands.machine import SHELLS
from tilelet.cli.declaration import Command
from tilelet.cli.values import (
    OneOf,
    budget,
    folder,
    local_address,
    name_list,
    new_file,
    number,
    positive_number,
    rank_count,
    seconds,
    token_list,
    variation,
    whole_number,
)
from tilelet.diag.catalogue import classes
from tilelet.diag.core import UserError
from tilelet.scripts import exit_codes

KERNEL = """
import tilelet.language as pl

@pl.jit
def double(x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.mul(x, 2.0)
    return y
"""

BAD_VALUES = {
    whole_number: "many",
    positive_number: "0",
    number: "many",
    token_list: "1 x",
    folder: "k.py",
    name_list: ",",
    new_file: "taken",
    variation: "=1",
    budget: "soon",
    rank_count: "0",
    seconds: "soon",
    local_address: "https://example.org",
}


def options_of(name: str) -> dict[str, argparse.Action]:
    return COMMANDS[name].parser().own_options


def positional(name: str) -> list[str]:
    """Return a value for every required argument of a command."""
    actions = COMMANDS[name].parser().own_actions
    required = [a for a in actions if not a.option_strings and a.nargs is None]
    given = ["bash" if isinstance(a.type, OneOf) else "k.py" for a in required]
    required_option = name in ("docs", "walkthrough")
    return ["--check", *given] if required_option else given


def checked_values() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for name in COMMANDS:
        for spelling, action in options_of(name).items():
            if isinstance(action.type, OneOf):
                found.append((name, spelling, "bogus"))
            elif action.type is not None:
                found.append((name, spelling, BAD_VALUES[action.type]))
    return found


def test_every_option_with_a_value_is_checked_or_named_here() -> None:
    free = {
        (name, spelling)
        for name in COMMANDS
        for spelling, action in options_of(name).items()
        if action.nargs is None and action.type is None
    }
    # Lookups of names, tested by `test_a_name_that_does_not_exist` and test_tune.py.
    looked_up = {"-p", "--platform", "--period", "--engine", "--only", "--executor", "--like"}
    looked_up |= {"--dialect", "--portable", "--program", "--profile", "--against"}
    looked_up |= {"--replay"}
    texts = {"--prompt"}
    assert {spelling for _, spelling in free} == looked_up | texts


@pytest.fixture(autouse=True)
def files(tilelet: Run) -> None:
    Path("k.py").write_text(KERNEL)
    Path("taken").mkdir()
    Path("bad.toml").write_text("= 3\n")
    Path("bad.json").write_text('{"version": 1}')


@pytest.mark.parametrize(("name", "option", "value"), checked_values())
def test_a_bad_value_is_2(tilelet: Run, name: str, option: str, value: str) -> None:
    for given in ([option, value], [f"{option}={value}"]):
        code, out, err = tilelet(name, *given, *positional(name))
        assert (code, out) == (2, "")
        # An option with two spellings is reported with both.
        assert re.match(rf"error\[E0705\]: `(-./)?{option}(/--\w+)?`: ", err)
        if COMMANDS[name].parser().takes_script:
            assert tilelet(name, *positional(name), *given) == (code, out, err)


@pytest.mark.parametrize(
    ("name", "option"),
    [(n, o) for n in COMMANDS for o, a in options_of(n).items() if a.nargs is None],
)
def test_a_missing_value_is_2(tilelet: Run, name: str, option: str) -> None:
    code, out, err = tilelet(name, option)
    assert (code, out) == (2, "")
    assert err.startswith("error[E0705]: `")
    assert "expected one argument" in err


@functools.cache
def every_spelling() -> list[str]:
    return sorted({o for name in COMMANDS for o in options_of(name) if o.startswith("--")})


@pytest.mark.parametrize("name", list(COMMANDS))
def test_only_options_of_the_command_are_suggested(
    tilelet: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, given, parser = set(options_of(name)), positional(name), COMMANDS[name].parser()
    # Building parsers dominates the cost, and this test needs hundreds.
    monkeypatch.setattr(COMMANDS[name], "parser", staticmethod(lambda: parser))
    for option in every_spelling():
        for typed in (option, option[:-1], f"{option}x"):
            if typed in own:
                continue
            code, out, err = tilelet(name, typed, *given)
            assert (code, out) == (2, ""), typed
            first, *helps = err.splitlines()
            assert first == f"error[E0705]: `tilelet {name}` has no option `{typed}`"
            suggested = set(re.findall(r"`(--[\w-]+)`", "\n".join(helps)))
            assert suggested <= own
            if option in own:
                assert option in suggested


def test_commands_get_suggestions(tilelet: Run) -> None:
    code, _, err = tilelet("profil", "k.py")
    assert code == 2
    assert "did you mean `profile`?" in err
    code, _, err = tilelet("--fast")
    assert code == 2
    assert "`tilelet` has no option `--fast`" in err


@pytest.mark.parametrize("name", list(COMMANDS))
def test_too_many_arguments_are_2(tilelet: Run, name: str) -> None:
    parser = COMMANDS[name].parser()
    if parser.takes_script or any(a.nargs == "*" for a in parser.own_actions):
        return
    code, out, err = tilelet(name, *positional(name), "a", "b", "c")
    assert (code, out) == (2, "")
    assert f"`tilelet {name}` has no use for `" in err


SCRIPTS = [["run"], ["tasks"], ["profile"], ["check"], ["compare", "k.py"]]
MODELLED = [["profile", "k.py"], ["check", "k.py"], ["compare", "k.py", "k.py"]]
MACHINES = [*([*argv, "-p"] for argv in MODELLED), ["demo", "-p"]]

# Arguments, the code and message they give, and the commands that accept them.
SAME_MISTAKE: dict[str, tuple[int, str, list[list[str]]]] = {
    "nope.py": (3, "error[E0701]: no file `nope.py`", SCRIPTS),
    "nope.json": (3, "error[E0701]: no file `nope.json`", SCRIPTS),
    "qwen3/scope9": (3, "error[E0701]: no file `qwen3/scope9`", SCRIPTS),
    "taken": (3, "error[E0702]: `taken` is not a Python script", SCRIPTS),
    "bad.json": (3, "error[E0916]: bad.json is not a saved profile", [["compare", "k.py"]]),
    "a9": (2, "error[E0901]: no machine `a9`", MACHINES),
    "nope.toml": (2, "error[E0901]: no machine `nope.toml`", MACHINES),
    "bad.toml": (2, "error[E0902]: machine file bad.toml is not valid TOML", MACHINES),
    "1999-01": (2, "no runtime period `1999-01`", [[*argv, "--period"] for argv in MODELLED]),
    "matmull": (2, "error[E0715]: the bench has no section `matmull`", [["bench"]]),
    "softmx": (2, "error[E0717]: no example `softmx`", [["examples"]]),
    "E0000": (2, "error[E0707]: no code `E0000`", [["explain"]]),
}


@pytest.mark.parametrize("typed", SAME_MISTAKE)
def test_the_same_mistake_has_the_same_code(tilelet: Run, typed: str) -> None:
    code, message, commands = SAME_MISTAKE[typed]
    for argv in commands:
        given = [*argv, typed]
        got, out, err = tilelet(*given)
        assert message in err, given
        assert (got, out) == (code, ""), given


def test_an_engine_that_does_not_exist(tilelet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    by_option = tilelet("run", "--engine", "warp", "k.py")
    monkeypatch.setenv("TILELET_ENGINE", "warp")
    assert by_option == tilelet("run", "k.py")
    assert by_option[0] == 2
    assert "error[E0711]: unknown engine `warp`" in by_option[2]


def test_names_that_are_looked_up_say_2_after_the_script_too(tilelet: Run) -> None:
    for name in ("profile", "check"):
        for option in (["-p", "a9"], ["--platforms", "a2a3,a9"], ["--period", "1999-01"]):
            before = tilelet(name, *option, "k.py")
            assert before == tilelet(name, "k.py", *option)
            assert before[0] == 2


@pytest.mark.parametrize("arguments", [("check", "--portable"), ("export", "--dialect")])
def test_a_dialect_that_does_not_exist(tilelet: Run, arguments: tuple[str, str]) -> None:
    code, out, err = tilelet(*arguments, "1999-01", "k.py")
    assert (code, out) == (2, "")
    assert err.startswith("error[E1251]: there is no dialect `1999-01`")


@pytest.mark.parametrize("command", ["run", "tasks", "profile", "check", "compare"])
def test_variables_are_checked_like_options(
    tilelet: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for variable, value in (("TILELET_FORMAT", "xml"), ("TILELET_SEED", "many")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            code, out, err = tilelet(command, "k.py")
        assert (code, out) == (2, "")
        assert err.startswith(f"error[E0705]: `{variable}`: `{value}` is n")


def test_every_error_has_one_code_whoever_raises_it() -> None:
    """Wrong usage exits with 2, other mistakes with 3; there are no other codes."""
    usage = {
        code
        for code, cls in classes().items()
        if exit_codes.of_error(UserError.__new__(cls)) == exit_codes.WRONG_USAGE
    }
    assert usage == {
        *("E0705", "E0707", "E0711", "E0715", "E0717"),
        *("E0901", "E0902", "E0903", "E0904", "E0905", "E0906", "E0907", "E0917"),
        *("E1101", "E1601"),
        *("E1251", "E1550"),
        *("E1401", "E1404", "E1406"),
    }


# Whose an argument is

PARSES = "import argparse\np = argparse.ArgumentParser()\n"
CALLS = "import numpy as np\nz = np.zeros((16, 64), np.float32)\ndouble(z, z.copy())\n"


def script(text: str, kernel: str = KERNEL) -> str:
    Path("own.py").write_text(f"{text}\n{kernel}")
    return "own.py"


@pytest.mark.parametrize(
    "mention",
    ["-o", "weight-only", "--json", "--html", "--format", "--fix --in-place", "-p --platform"],
)
def test_what_a_script_mentions_is_not_its_option(tilelet: Run, mention: str) -> None:
    """Our options are ours, even if a docstring or comment of the script mentions them."""
    name = script(f'"""A {mention} kernel."""\n# see {mention}\n')
    assert json.loads(tilelet("verdict", name, "--json")[1])["command"] == "verdict"
    assert json.loads(tilelet("check", name, "--format", "json")[1])["version"] == 1
    assert tilelet("profile", name, "--html", "page.html", "--no-files")[0] == 0
    assert Path("page.html").exists()
    profiled = json.loads(tilelet("profile", name, "-p", "a5", "--format", "json")[1])
    assert profiled["profiles"][0]["machine"] == "a5"


@pytest.mark.parametrize("mention", ["-o", "weight-only", "--output"])
def test_an_export_goes_where_it_is_told(tilelet: Run, mention: str) -> None:
    arguments = "import numpy as np\nfrom golden import TensorSpec, run\nimport torch\n"
    specs = (
        "specs = [TensorSpec('x', [16, 64], torch.float32, init_value=1.0),"
        " TensorSpec('y', [16, 64], torch.float32, is_output=True)]\n"
        "run(double, specs, golden_fn=lambda t: t['y'].copy_(t['x'] * 2))\n"
    )
    name = script(f'"""A {mention} kernel."""\n{arguments}', KERNEL + specs)
    code, out, err = tilelet("export", name, "-o", "out.py")
    assert code == 0, err
    assert re.match(r"out.py: \d+ lines, in the language of 2026-08\n", out)
    assert "def double" in Path("out.py").read_text()


@pytest.mark.parametrize(
    ("command", "typed", "meant"),
    [
        ("profile", "--htlm", "--html"),
        ("run", "--nonsense", None),
        ("run", "--strikt", "--strict"),
        ("verdict", "--jsn", "--json"),
        ("advise", "--in-plase", "--in-place"),
        ("tune", "--bugdet=3", "--budget"),
        ("check", "--onli=init", "--only"),
        ("diverge", "--budgt=3", "--budget"),
        ("export", "--outptu=x", "--output"),
        ("tasks", "--as-runtim", "--as-runtime"),
    ],
)
def test_an_option_that_nobody_reads_is_2(
    tilelet: Run, command: str, typed: str, meant: str | None
) -> None:
    code, _, err = tilelet(command, "k.py", typed)
    assert code == 2
    option = typed.partition("=")[0]
    message = f"`tilelet {command}` has no option `{option}`, and `k.py` reads no arguments"
    assert f"error[E0705]: {message}" in err
    assert (f"did you mean `{meant}`" in err) == (meant is not None)
    assert ("did you mean" in err) == (meant is not None)


def test_an_option_that_nobody_reads_is_2_on_a_side_of_a_comparison(tilelet: Run) -> None:
    code, _, err = tilelet("compare", "k.py --nonsense", "k.py")
    assert code == 2
    assert "`tilelet compare` has no option `--nonsense`, and `k.py` reads no arguments" in err


def test_a_word_that_nobody_reads_is_2(tilelet: Run) -> None:
    code, _, err = tilelet("run", "k.py", "16")
    assert code == 2
    assert "`tilelet run` has no use for `16`, and `k.py` reads no arguments" in err


def test_scripts_that_parse_arguments_get_theirs(tilelet: Run) -> None:
    text = f"{PARSES}p.add_argument('-d', type=int)\np.add_argument('--enable-swimlane', "
    text += "action='store_true')\np.add_argument('rows', type=int)\na = p.parse_args()\n"
    text += "assert (a.d, a.enable_swimlane, a.rows) == (3, True, 16)\n"
    for command in ("run", "tasks", "profile", "check"):
        code, out, err = tilelet(command, script(text), "-d", "3", "16", "--enable-swim")
        assert code == 0, (out, err)


def test_a_script_that_parses_says_what_it_does_not_know(tilelet: Run) -> None:
    code, _, err = tilelet("profile", script(f"{PARSES}p.parse_args()"), "--htlm", "x")
    assert code == 2
    assert "unrecognized arguments: --htlm x" in err  # by argparse itself
    assert "`tilelet profile` has no option `--htlm`, and `own.py` does not know it" in err
    assert "did you mean `--html`?" in err


def test_a_script_may_leave_arguments_over(tilelet: Run) -> None:
    code, _, err = tilelet("run", script(f"{PARSES}p.parse_known_args()"), "--htlm", "--strict")
    assert code == 0
    assert "note: `tilelet run` has no option `--htlm`, and `own.py` does not know it" in err


@pytest.mark.parametrize("read", ["sys.argv[1]", "list(sys.argv)[1]", "[a for a in sys.argv][1]"])
def test_a_script_may_read_sys_argv(tilelet: Run, read: str) -> None:
    text = f"import sys\nassert {read} == '--rows'"
    assert tilelet("run", script(text), "--rows", "16")[0] == 0


def test_the_name_of_the_script_is_no_argument(tilelet: Run) -> None:
    code, _, _ = tilelet("run", script("import sys\nprint(sys.argv[0])"), "--rows")
    assert code == 2


def test_what_both_declare_goes_to_both(tilelet: Run) -> None:
    """The error points at the place where the option was typed, in a spelling the script has."""
    text = f"{PARSES}p.add_argument('--platform', choices=['a2a3', 'a5'])\n"
    text += "p.add_argument('--seed', type=int)\np.add_argument('rows', nargs='*')\n"
    text += "print('got', vars(p.parse_args()))\n"
    name = script(text)
    code, out, err = tilelet(
        "profile", name, "-p", "a5", "16", "32", "--seed=7", "--format", "json"
    )
    assert code == 0
    assert "got {'platform': 'a5', 'seed': 7, 'rows': ['16', '32']}" in err
    assert json.loads(out)["profiles"][0]["machine"] == "a5"
    # Only ours: before the script, or a machine that is not a platform of any script.
    _, _, err = tilelet("profile", "-p", "a5", "--seed", "7", name)
    assert "got {'platform': None, 'seed': None, 'rows': []}" in err
    # Only the script's.
    _, out, _ = tilelet("run", name, "--seed=7", "--", "--platform", "a5", "--seed", "9")
    assert "got {'platform': 'a5', 'seed': 9, 'rows': []}" in out


def test_what_follows_two_dashes_is_the_scripts(tilelet: Run) -> None:
    text = f"{PARSES}p.add_argument('--format')\nassert p.parse_args().format == 'csv'"
    code, out, err = tilelet("check", script(text), "--", "--format", "csv")
    assert (code, out.splitlines()[0]) == (0, "double on a2a3: no findings"), err
    assert tilelet("run", "k.py", "--", "--nonsense")[0] == 0
    code, _, err = tilelet("check", script(text), "--format", "csv")
    assert code == 2
    assert "write `--` before it if it is an option of the script" in err


def test_help_after_the_script_is_the_scripts(tilelet: Run) -> None:
    code, out, _ = tilelet("run", script(f"{PARSES}p.parse_args()"), "--help")
    assert (code, out.split("\n")[0]) == (0, "usage: own.py [-h]")
    assert tilelet("run", "k.py", "--help")[0] == 2


def test_a_shipped_program_parses_its_arguments(tilelet: Run) -> None:
    code, _, err = tilelet("tasks", "qwen3/scope3", "--format", "json", "--variants", "tuned")
    assert code == 2
    assert "did you mean" not in err
    assert "unrecognized arguments: --variants tuned" in err


def test_what_a_failed_side_of_a_comparison_says_counts(tilelet: Run) -> None:
    call = "import numpy as np\nz = np.zeros((16, 64), np.float32)\ndouble(z, z.copy())\n"
    Path("late.py").write_text(f"{KERNEL}\n{call}1 / 0\n")
    code, out, err = tilelet("compare", "k.py", "late.py")
    assert (code, out) == (3, "")
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize("command", ["profile", "run"])
def test_a_folder_that_cannot_be_written_is_3(
    tilelet: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "out")

    monkeypatch.setattr(Path, "mkdir", refuse)
    extra = ["--dump-passes"] if command == "run" else []
    code, _, err = tilelet(command, "--build-dir", "out", *extra, "k.py")
    assert code == 3
    assert "error[E0709]: cannot write `out" in err


# Help and completion


def test_maintainers_commands_are_not_in_help(tilelet: Run) -> None:
    code, out, _ = tilelet("--help")
    assert code == 0
    shown = re.findall(r"^  (\w+)  +\S", out.split("Examples:")[0], re.MULTILINE)
    assert [n for n in shown if n in COMMANDS] == [c.name for c in listed_commands()]
    assert not {"docs", "walkthrough", "report", "list", "version"} & set(shown)
    assert len(out.splitlines()) < 55
    code, out, err = tilelet("doc")
    assert "`docs`" not in err
    assert tilelet("docs", "--help")[0] == 0


@pytest.mark.parametrize("command", listed_commands())
def test_every_command_has_help_with_examples(tilelet: Run, command: type[Command]) -> None:
    code, out, _ = tilelet(command.name, "--help")
    assert code == 0
    assert f"tilelet {command.name}" in out.split("Examples:")[1]


def test_earlier_spellings_keep_working(tilelet: Run) -> None:
    assert tilelet("version") == tilelet("--version")
    assert tilelet("list")[1] in tilelet("examples")[1]
    assert tilelet("profile", "k.py", "--build-dir", "out")[0] == 0
    (run,) = Path("out").iterdir()
    assert tilelet("report", str(run), "--html", "a.html")[0] == 0
    assert tilelet("view", str(run), "--html", "b.html")[0] == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_explain_without_a_code_is_a_search(tilelet: Run) -> None:
    code, out, _ = tilelet("explain")
    assert code == 0
    assert len(out.splitlines()) < 60
    every = tilelet("explain", "--all")[1].splitlines()
    assert len(every) == len(classes())
    code, out, _ = tilelet("explain", "valid", "shape")
    assert code == 0
    assert set(out.splitlines()) < set(every)
    assert tilelet("explain", "zyzzyva")[0] == 2


def test_the_python_api_takes_what_the_commands_declare() -> None:
    """Keyword arguments of `tilelet.tune` and `tilelet.verdict` are options of the commands."""
    import dataclasses
    import inspect

    import tilelet as package

    # The command takes its budget as two numbers, and its seed draws inputs.
    renamed = {"candidates": "budget", "seconds": "budget", ("tune", "seed"): "search_seed"}
    for name in ("tune", "verdict"):
        fields = {f.name: f for f in dataclasses.fields(COMMANDS[name])}
        for keyword in inspect.signature(getattr(package, name)).parameters.values():
            if keyword.kind is not keyword.KEYWORD_ONLY:
                continue
            meant = renamed.get((name, keyword.name)) or renamed.get(keyword.name) or keyword.name
            assert meant in fields, (name, keyword.name)
            if keyword.name == meant and keyword.name not in ("platform", "vary"):
                assert keyword.default == fields[meant].default, (name, keyword.name)


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_option_of_users(tilelet: Run, shell: str) -> None:
    code, out, _ = tilelet("completion", shell)
    assert code == 0
    for command in listed_commands():
        assert command.name in out
        for option in command.parser().own_options:
            assert (option if shell != "fish" else f" {option.lstrip('-')}") in out
    assert not re.search(r"\bstory\b", out)


def complete(folder: Path, script: str, *words: str) -> set[str]:
    """Return the completions that bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    text = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tilelet; "
    text += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "done.bash").write_text(tilelet("completion", "bash")[1])

    def offered(*words: str) -> set[str]:
        return complete(tmp_path, "done.bash", "tilelet", *words)

    assert offered("pr") == {"profile"}
    assert offered("run", "--fo") == {"--format"}
    assert offered("tasks", "--eng") == set()
    assert offered("run", "--format", "") == {"text", "json", "sarif"}
    assert offered("compare", "--format", "") == {"text", "json"}
    assert offered("run", "--engine", "") == {"cpu", "interp"}
    assert offered("profile", "-p", "a") == {"a2a3", "a5"}
    assert offered("run", "k") == {"k.py"}
    assert "qwen3/decode" in offered("run", "qwen3/")
    assert offered("run", "--build-dir", "") == {"taken"}
    assert offered("explain", "E070") >= {"E0701", "E0705"}
    assert offered("examples", "01") == {"01_hello"}
    assert offered("version", "") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_accept_their_script(tilelet: Run, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tilelet("completion", shell)[1]
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("scope", "claim"),
    [
        ("", "proved"),
        (
            ", no_dep_args=[acc]",
            "not looked at (its tasks are not shown to be ordered for all inputs)",
        ),
    ],
)
def test_an_export_is_proved_only_if_its_tasks_are_ordered(
    tilelet: Run, scope: str, claim: str
) -> None:
    kernel = f"""
@pl.jit
def total(x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP{scope}):
            acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
    return acc


specs = [TensorSpec("x", [64, 128], torch.float32, init_value=1.0)]
specs.append(TensorSpec("acc", [16, 128], torch.float32, is_output=True))
run(total, specs, golden_fn=lambda t: t["acc"].copy_(t["x"].reshape(4, 16, 128).sum(0)))
"""
    imports = "import torch\nimport tilelet.language as pl\nfrom golden import TensorSpec, run\n"
    Path("total.py").write_text(imports + kernel)
    code, out, err = tilelet("export", "total.py", "-o", "out.py")
    assert code == 0, err
    assert out.splitlines()[1] == f"results equal, bit for bit, for all inputs: {claim}"


def test_a_command_must_have_something_to_run() -> None:
    with pytest.raises(TypeError, match=r"abstract.*run"):
        Command()  # pyright: ignore[reportAbstractUsage]
