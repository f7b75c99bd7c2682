"""The documentation: links lead somewhere, code is Python, commands have only options that exist, public names are listed."""

import ast
import contextlib
import dataclasses
import fnmatch
import functools
import importlib
import io
import re
import shlex
import tomllib
from pathlib import Path

import jax
import pytest
import tyro

from fmu_plants import build_fmu
from sonde.cli import _main
from sonde.cli._choices import PARTS
from sonde.imagination import IMAGINATIONS
from sonde.models import BETA_RULES, MODELS
from sonde.objectives import OBJECTIVES
from sonde.runs import PRESETS, RunConfig
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *ROOT.glob("docs/**/*.md"),
        *(page for folder in ("benchmarks", "experiments") for page in (ROOT / folder).glob("*.md")),
    ]
)
USER_PAGES = [page for page in PAGES if page.name not in ("CHANGELOG.md", "NOTES.md")]
FENCE = re.compile(r"^(?P<mark><!-- run -->\n)?```(?P<kind>[\w{}-]*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = ("data", "models", "imagination", "objectives", "methods", "solvers", "control", "worlds", "explorer", "evaluation")
ROOMS = ("", *ROOMS, "theory", "analysis", "solvers.adversarial")
ROOMS = (*ROOMS, "runs", "runs.figures", "runs.report", "runs.sweep", "runs.trackers")
SMALL = {"range(4)": "range(1)", "policy, 100": "policy, 8", "samples=100": "samples=12", "horizon=200": "horizon=3"}


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[re.Match]:
    return list(FENCE.finditer(page.read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_relative_links_exist(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page_name(page)}: {target} does not exist"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page_name(page)}: {target} has no such heading"


def test_every_page_of_the_documentation_can_be_reached():
    docs = ROOT / "docs"
    listed = re.findall(r'"([\w/*-]+)"', (docs / "conf.py").read_text().partition("\nnavigation = ")[2])
    in_side_bar = [page for name in listed for page in docs.glob(f"{name}.md")]
    seen, todo = set(), [ROOT / "README.md", *in_side_bar]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text())
        todo += [found for target in targets if (found := (page.parent / target).resolve()).exists()]
    assert {page for page in PAGES if "docs" in page.parts} <= seen


@pytest.mark.parametrize("page", USER_PAGES, ids=page_name)
def test_mentioned_files_of_the_repository_exist(page):
    for path in re.findall(r"`((?:src|tests|benchmarks|experiments|examples|scripts)/[\w./-]+)", page.read_text()):
        assert (ROOT / path).exists(), f"{page_name(page)}: {path} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_compile(page):
    for block in blocks(page):
        if block["kind"] == "python":
            ast.parse(block["code"], filename=page_name(page))


MARKED = [page for page in PAGES if "<!-- run -->" in page.read_text()]
SLOW = ("README.md", "getting-started.md")


@pytest.fixture
def unoptimised():
    """Nothing here runs for long, and all of it compiles."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page_name(page), marks=[pytest.mark.slow] if page.name in SLOW else []) for page in MARKED]
)
def test_marked_python_blocks_run(page, unoptimised, capsys):
    names: dict = {"__name__": "example"}
    for block in blocks(page):
        if block["mark"]:
            code = block["code"]
            for old, new in SMALL.items():  # the same program with less to do
                code = code.replace(old, new)
            exec(compile(code, page_name(page), "exec"), names)
    capsys.readouterr()


def test_the_spelling_check_reads_the_pages():
    skipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["codespell"]["skip"].split(",")
    paths = [f"./{page_name(page)}" for page in PAGES]  # as codespell, which also matches the whole path, sees them
    assert not [path for path in paths if any(fnmatch.fnmatch(path, pattern) for pattern in skipped)]


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 700


# Commands


class ParsedError(Exception):
    """Raised in place of doing what a command asks for, once its words are understood."""


@pytest.fixture(scope="module")
def parse(tmp_path_factory):
    """Parse the words of a command, in a folder that has the files that the pages speak of."""
    folder, parser = tmp_path_factory.mktemp("files"), tyro.cli
    marked = [block["code"] for block in blocks(ROOT / "docs" / "extending.md") if block["mark"]]
    files = {"mine.py": "\n".join(marked), "rewards.py": "def stand(x, u, x_next):\n    return x_next[0]\n"}
    for block in [
        block
        for page in ("getting-started", "gymnasium", "known-physics", "fmu")
        for block in blocks(ROOT / "docs" / f"{page}.md")
    ]:
        if name := re.match(r"# (\w+\.py)\n", block["code"]):
            files[name[1]] = files.get(name[1], "") + block["code"]
    cells = [block["code"] for block in blocks(ROOT / "docs" / "notebooks" / "new-method.md") if "code-cell" in block["kind"]]
    files["information_about.py"] = "\n".join(cells[:2])  # the imports, and the objective
    for name, code in files.items():
        (folder / name).write_text(code)
    build_fmu(folder, "pendulum.py")

    def only_parse(*args, **options):
        parser(*args, **options)
        raise ParsedError

    def parse(words: list[str]) -> None:
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            patch.chdir(folder)
            patch.setattr(tyro, "cli", only_parse)
            try:
                importlib.import_module(f"sonde.cli._{words[0]}").main(words[1:])
            except (ParsedError, SystemExit) as end:
                assert isinstance(end, ParsedError) or end.code == 0, printed.getvalue()

    return parse


def commands(page: Path) -> list[list[str]]:
    """The `sonde ...` lines of code blocks, as words."""
    texts = [block["code"].replace("\\\n", " ") for block in blocks(page) if block["kind"] != "python"]
    lines = [line for text in texts for line in text.splitlines()]
    return [shlex.split(line.removesuffix(" &"), comments=True)[1:] for line in lines if line.startswith("sonde ")]


@pytest.mark.parametrize("page", [page for page in USER_PAGES if commands(page)], ids=page_name)
def test_commands_in_blocks_parse(page, parse):
    for words in commands(page):
        assert words[0] in _main.COMMANDS, f"{page_name(page)}: there is no command {words[0]!r}"
        parse(words)


@functools.cache
def help_text(command: str, system: str) -> str:
    """What `sonde COMMAND [SYSTEM] --help` prints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        patch.setenv("COLUMNS", "300")
        importlib.import_module(f"sonde.cli._{command}").main([system, "--help"] if system else ["--help"])
    return printed.getvalue()


@pytest.mark.parametrize("page", USER_PAGES, ids=page_name)
def test_commands_in_the_text_exist(page):
    """They may leave words out, or have placeholders; their options must exist."""
    for words in re.findall(r"`sonde ([a-z]+)([^`]*)`", FENCE.sub("", page.read_text())):
        name, rest = words
        assert name in _main.COMMANDS, f"{page_name(page)}: there is no command {name!r}"
        system = ""
        if name in ("explore", "sweep"):
            system = next((word for word in rest.split() if word in PRESETS), "pendulum-gp-lite")
        for option in re.findall(r"(?<!\S)--[\w.-]+", rest):
            known = option == "--help" or re.search(rf"{option}\b", help_text(name, system))
            assert known, f"{page_name(page)}: 'sonde {name}{rest}' has no option {option}"


@pytest.mark.parametrize("page", [page for page in USER_PAGES if "docs" in page.parts], ids=page_name)
def test_options_in_the_text_exist(page):
    """An option that stands alone belongs to some command, or to some preset, world or part of `sonde explore`."""
    for option in re.findall(r"`(--[\w.-]+)", FENCE.sub("", page.read_text())):
        assert option.replace(".no-", ".").replace("--no-", "--") in all_options(), f"{page_name(page)}: {option} is no option"


@functools.cache
def all_options() -> set[str]:
    """The options of all commands, and the fields of all parts."""
    texts = [help_text(name, "") for name in _main.COMMANDS if name not in ("explore", "sweep")]
    texts += [help_text("sweep", "pendulum-gp-lite"), help_text("explore", "pendulum-gp-lite")]
    options = {option for text in texts for option in re.findall(r"(?<![\w-])--[a-z][\w.-]*", text)}
    parts = {"model": MODELS, "solver": SOLVERS, "world": WORLDS, "method.imagination": IMAGINATIONS}
    parts |= {"method.objective": OBJECTIVES, "beta-rule": BETA_RULES}
    for prefix, table in parts.items():
        kinds = (kind if isinstance(kind, type) else type(kind) for kind in table.values() if kind is not None)
        names = (field.name for kind in kinds if dataclasses.is_dataclass(kind) for field in dataclasses.fields(kind))
        options |= {f"--{prefix}.{name.replace('_', '-')}" for name in names}
    return options | {f"--{part}" for part in PARTS} | {"--peers", "--quick", "--run", "--scale", "--only"}


@pytest.mark.parametrize("page", USER_PAGES, ids=page_name)
def test_commands_of_a_clone_exist(page):
    """`python -m benchmarks ...` and `python -m experiments ...` parse, and `make` has the targets."""
    text = page.read_text()
    for package, rest in re.findall(r"(?:^|`)python -m (benchmarks|experiments)(?![.\w])([^`\n]*)", text, re.MULTILINE):
        arguments = importlib.import_module(f"{package}.__main__").Arguments
        tyro.cli(arguments, args=shlex.split(re.split(r"\s{2,}|#", rest)[0].replace("FIGURE", "all")))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
        assert target in targets, f"{page_name(page)}: there is no 'make {target}'"


# Names


def test_every_field_of_a_config_is_explained():
    page = (ROOT / "docs" / "runs.md").read_text()
    explained = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)))
    missing = {field.name for field in dataclasses.fields(RunConfig)} - set(explained)
    assert not missing


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_are_listed(room):
    module = importlib.import_module(f"sonde.{room}".rstrip("."))
    public = getattr(module, "__all__", None)
    if public is None:
        public = [name for name, value in vars(module).items() if not name.startswith("_") and defined_in(value, module, name)]
    text = (ROOT / "docs" / "python-api.md").read_text()
    section = re.search(rf"^## {module.__name__}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    listed = {name for row in re.findall(r"^\| (`.*?) \|", section[1], re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == set(public)


def defined_in(value: object, module: object, name: str) -> bool:
    """Whether a module without `__all__` defines a class, a function or a table."""
    if name.isupper():
        return isinstance(value, dict)
    return getattr(value, "__module__", None) == getattr(module, "__name__", "")
