"""The committed page is what the generator makes of the committed result files."""

from pathlib import Path

from latflow.reproduce.page import page
from latflow.reproduce.result import read_results

ROOT = Path(__file__).parents[2]


def test_docs_results_is_up_to_date():
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    made = page(read_results(ROOT / "results"))
    assert written == made, "write it anew: latflow reproduce all --show --docs docs/results.md"


def test_every_committed_result_is_known_and_holds_no_path():
    for path in (ROOT / "results").glob("*.json"):
        assert path.stem in read_results(ROOT / "results"), f"{path.name} is no preset's result"
        text = path.read_text(encoding="utf-8")
        assert "/home" not in text
        assert "/tmp" not in text
        assert "/work" not in text
