"""Who may know whom (docs/architecture.md), read from the imports themselves."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "latflow"

# What each part may import of the package; a part that is not listed may import everything.
ALLOWED = {
    "errors": set(),
    "shapes": set(),
    "progress": set(),
    "stops": set(),
    "axes": {"errors"},
    "former": set(),
    "config": {"axes", "errors", "former"},
    "shipped": {"errors"},
    "flows": {"flows", "shapes"},
    "fast": {"fast", "flows", "models", "shapes"},
    "data": {"data", "config", "errors", "progress"},
    "models": {"models", "flows", "shapes", "axes", "config", "errors", "data.base"},
}


def imports(path: Path) -> set[str]:
    """The latflow modules a file imports, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "latflow":
                names = [f"latflow.{alias.name}" for alias in node.names]
        found |= {name.removeprefix("latflow.") for name in names if name.startswith("latflow.")}
    return found


FILES = [
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in ALLOWED
]


# From below: nobody imports what stands further down in this list.
LEVELS = [
    {"training"},
    {"use"},
    {"reproduce", "plots"},
    {"demo", "bench", "page"},
    {"cli"},
]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_equations_know_no_speed():
    """No word of kernels, prepared weights or allocators among the equations."""
    files = list((PACKAGE / "flows").glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [word for word in ("numba", "kernels", "deferred", "mallopt") if word in text] == []


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_a_level_knows_none_above_it(level):
    above = {part for parts in LEVELS[level + 1 :] for part in parts}
    files = [path for path in PACKAGE.rglob("*.py") if part_of(path) in LEVELS[level]]
    assert {part_of(path) for path in files} == LEVELS[level]
    for path in files:
        assert not {name.partition(".")[0] for name in imports(path)} & above, path


def test_the_page_names_every_part():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = {part_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert [part for part in sorted(parts) if f"{part}.py" not in page and f"{part}/" not in page] == []


def test_the_parts_are_there():
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_part_knows_only_the_parts_below_it(path):
    allowed = ALLOWED[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    for name in imports(path):
        assert any(name == part or name.startswith(part + ".") for part in allowed), (
            f"{path.name} imports latflow.{name}"
        )


AT_ONCE = ["__init__", "config", "presets", "errors", "shipped/__init__"]
AT_ONCE += [f"cli/{path.stem}" for path in sorted((PACKAGE / "cli").glob("*.py"))]


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_answers_at_once_imports_nothing_heavy(name):
    path = PACKAGE / f"{name}.py"
    heavy = {
        "torch",
        "numpy",
        "matplotlib",
        "yaml",
        "latflow.flows",
        "latflow.models",
        "latflow.data",
        "latflow.training",
        "latflow.use",
        "latflow.reproduce",
        "latflow.plots",
        "latflow.bench",
        "latflow.demo",
        "latflow.page",
        "starlette",
        "uvicorn",
    }
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
            assert not [n for n in names for part in heavy if n == part or n.startswith(f"{part}.")]
