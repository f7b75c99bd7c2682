"""The project's own files: versions agree, workflows call what exists, and distributions hold what they should."""

import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import sonde

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
# commands that every runner of GitHub's has
TOOLS = {"make", "python", "sudo", "apt-get", "test", "cd"}


def steps(workflow: Path) -> list[dict]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


def commands(script: str) -> list[list[str]]:
    """The commands of a shell script without pipes and loops, as words."""
    parts = [part for line in script.splitlines() for part in line.split("&&")]
    return [words for part in parts if (words := shlex.split(part))]


def made_targets(words: list[str]) -> list[str]:
    """The targets in the words after `make`, without options and variables."""
    return [word for word in words[1:] if not word.startswith("-") and "=" not in word]


# --- versions


def test_all_versions_agree():
    newest = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    assert CITATION["version"] == sonde.__version__ == newest
    assert "version" in PROJECT["project"]["dynamic"] and "version" not in PROJECT["project"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{sonde.__version__}"' in source.read_text()


def test_changelog_has_sections_for_users():
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert re.findall(r"^### (\w+)", newest, flags=re.MULTILINE) == ["Added", "Changed", "Fixed"]


# --- citation


def test_citation_has_the_required_fields_and_the_paper():
    assert {"cff-version", "message", "title", "authors"} <= CITATION.keys()
    assert CITATION["license"] == PROJECT["project"]["license"]
    assert CITATION["repository-code"] == PROJECT["project"]["urls"]["Homepage"]
    (paper,) = CITATION["references"]
    assert paper["title"] == "Optimistic Active Exploration of Dynamical Systems" and paper["year"] == 2023
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Sukhija", "Treven", "Sancaktar", "Blaes", "Coros", "Krause"]


# --- workflows and hooks


def test_there_are_workflows_for_changes_documentation_and_releases():
    triggers = {path.stem: yaml.safe_load(path.read_text())[True] for path in WORKFLOWS}  # YAML reads the key `on` as true
    assert triggers.keys() == {"ci", "docs", "release"}
    assert "pull_request" in triggers["ci"]
    assert "pull_request" in triggers["docs"] and triggers["docs"]["push"]["branches"] == ["main"]
    assert triggers["release"]["push"]["tags"] == ["v*"]


def test_the_site_is_published_from_main_only_and_after_it_was_built():
    jobs = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "build" and jobs["publish"]["if"] == "github.ref == 'refs/heads/main'"
    assert any(made_targets(shlex.split(step.get("run", ""))) == ["docs"] for step in jobs["build"]["steps"])
    (uploaded,) = [step["with"]["path"] for step in jobs["build"]["steps"] if "upload-pages" in step.get("uses", "")]
    assert f" {uploaded}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_of_a_workflow_exists(workflow):
    found = [words for step in steps(workflow) for words in commands(step.get("run", ""))]
    assert any(words[0] == "make" for words in found)
    for words in found:
        # commands in an environment that an earlier step has made are named by their path
        assert words[0] in TOOLS or words[0].startswith(("/tmp/fresh/bin/", ".venv/bin/")), words
        if words[0] == "make":
            assert set(made_targets(words)) <= TARGETS, words
        if words[0].endswith("/bin/sonde"):
            done = subprocess.run([sys.executable, "-m", "sonde", *words[1:]], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_of_a_workflow_has_a_version(workflow):
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", name) for name in used), used


def test_ci_covers_every_supported_python_and_the_oldest_and_newest_jax():
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    matrix, prefix = job["strategy"]["matrix"], "Programming Language :: Python :: 3."
    supported = [name.rsplit(" ", 1)[1] for name in PROJECT["project"]["classifiers"] if name.startswith(prefix)]
    assert matrix["python"] == supported == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={supported[0]}"
    assert [*matrix["jax"], *(entry["jax"] for entry in matrix["include"])] == ["newest", "oldest"]
    (constraints,) = re.findall(r"'(\S+\.txt)'", job["env"]["PIP_CONSTRAINT"])
    pinned = dict(line.split("==") for line in (ROOT / constraints).read_text().splitlines() if "==" in line)
    (floor,) = [name.removeprefix("jax>=") for name in PROJECT["project"]["dependencies"] if name.startswith("jax>=")]
    assert pinned["jax"] == pinned["jaxlib"] == f"{floor}.0"


def test_a_release_is_published_only_after_build_and_tests_without_a_stored_token():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    publish = jobs.pop("publish")
    assert set(publish["needs"]) == jobs.keys()
    assert publish["permissions"] == {"id-token": "write"}
    assert any(step.get("uses", "").startswith("pypa/gh-action-pypi-publish@") for step in publish["steps"])
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    assert any("GITHUB_REF_NAME" in step.get("run", "") for step in jobs["build"]["steps"])


def test_pre_commit_runs_the_linter_and_formatter_of_the_makefile():
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", repository["rev"]) for repository in repositories)
    hooks = {hook["id"] for repository in repositories for hook in repository["hooks"]}
    assert {"ruff-check", "ruff-format", "check-yaml", "check-toml", "end-of-file-fixer", "trailing-whitespace"} <= hooks
    (ruff,) = [repository["rev"] for repository in repositories if "ruff" in repository["repo"]]
    (floor,) = [name for name in PROJECT["project"]["optional-dependencies"]["dev"] if name.startswith("ruff>=")]
    numbers = lambda text: [int(part) for part in re.findall(r"\d+", text)]
    assert numbers(ruff) >= numbers(floor)


# --- make


@pytest.mark.parametrize(
    "target", ["demo", "test", "check", "test-gpu", "benchmark", "figures", "dist", "clean", "help", "docs", "linkcheck"]
)
def test_make_knows_the_target(target):
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_tiers_of_tests_are_what_they_say():
    printed = lambda target: subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True).stdout
    for target in ("test", "check"):
        assert all(f".venv/bin/{tool}" in printed(target) for tool in ("ruff check", "ruff format --check", "ty check"))
        assert ("not slow" in printed(target)) == (target == "check")
        assert "-m pytest" in printed(target)
    assert "JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false" in printed("test-gpu")
    assert any(marker.startswith("slow:") for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"])
    other = subprocess.run(["make", "--dry-run", "test-gpu", "GPU_PYTHON=python3"], cwd=ROOT, capture_output=True, text=True)
    assert other.returncode == 0 and "-m venv" not in other.stdout


def test_what_runs_before_a_change_lands_is_make_test():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o100
    assert [made_targets(words) for words in commands(script.read_text()) if words[0] == "make"] == [["test"]]


def test_pages_name_targets_extras_and_files_that_exist():
    extras, found = PROJECT["project"]["optional-dependencies"].keys(), 0
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text()
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL))
        targets = re.findall(r"\bmake ([a-z][a-z-]*)", code)
        named = re.findall(r"(?:sonde|\.)\[([a-z,]+)\]", code)
        found += len(targets) + len(named)
        assert set(targets) <= TARGETS, (page, targets)
        assert {extra for some in named for extra in some.split(",")} <= extras, (page, named)
        for script in re.findall(r"\b(?:experiments|benchmarks|examples)/[\w/]+\.py", text):
            assert (ROOT / script).is_file(), (page, script)
    assert found > 5
    assert {extra for some in re.findall(r"'\.\[([a-z,]+)\]'", makefile) for extra in some.split(",")} <= extras


def test_error_messages_name_extras_that_exist():
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"extra ['\"\[](\w+)|sonde\[(\w+)\]", path.read_text())}
    assert {name for pair in named for name in pair if name} <= PROJECT["project"]["optional-dependencies"].keys()


# --- distributions


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\nthe extra 'dev' has what is needed"
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = f"sonde-{sonde.__version__}.dist-info/"
    assert all(name.startswith(("sonde/", metadata)) for name in names)
    assert {"sonde/py.typed", "sonde/__init__.py", "sonde/cli/_main.py", f"{metadata}licenses/LICENSE"} <= set(names)
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    templates = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/sonde/runs/report/assets").iterdir()}
    assert templates <= set(names) and {Path(name).suffix for name in templates} == {".css", ".html", ".js"}
    assert not [name for name in names if re.search(r"(^|/)(benchmarks|experiments|tests|bench|reproduce)/", name)]


def test_the_wheel_says_what_it_is(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"sonde-{sonde.__version__}.dist-info/METADATA").decode()
        entry_points = archive.read(f"sonde-{sonde.__version__}.dist-info/entry_points.txt").decode()
    assert f"\nVersion: {sonde.__version__}\n" in text and "\nLicense-Expression: Apache-2.0\n" in text
    assert "Classifier: Typing :: Typed" in text and "Project-URL: Homepage, https://" in text
    extras = re.findall(r"^Provides-Extra: (\w+)$", text, flags=re.MULTILINE)
    others = {"mujoco", "fetch", "data", "render", "ray", "tensorboard", "wandb", "trackio", "logs", "onnx", "control", "fmu"}
    assert set(extras) == {*others, "benchmarks", "dev", "docs"}
    assert "sonde = sonde.cli:main" in entry_points


def test_the_source_distribution_can_run_tests_benchmarks_and_experiments(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    wanted = ("Makefile", "CITATION.cff", "tests/conftest.py", "benchmarks/__main__.py", "experiments/__main__.py", "LICENSE")
    assert set(wanted) <= set(names)
    assert not [name for name in names if name.startswith((".cache/", ".venv/", "runs/", "dist/"))]
