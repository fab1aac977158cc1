"""Tables from result files: what stands beside the paper's number, and what may not."""

import json
import re
import shlex

import pytest

from latflow.cli import parse
from latflow.cli.train import config_of
from latflow.config import evolve, to_dict
from latflow.errors import LatflowError
from latflow.presets import PAPER, PRESETS, find
from latflow.reproduce.page import page
from latflow.reproduce.render import as_json, as_latex, as_markdown, as_text, fill, latex_escape, write
from latflow.reproduce.result import Result, command, curve_of, read_results, result_path, run_status
from latflow.reproduce.tables import TABLES, choose, command_of, find_tables
from tests.reproduce.fake import fake, renamed


def lines(shown):
    return {line.preset or line.title: line for block in shown.blocks for line in block.lines}


def test_every_number_of_the_paper_stands_in_a_table():
    shown = {
        line.preset: line.paper
        for table in TABLES.values()
        for line in lines(fill(table, False, {})).values()
    }
    assert {name: paper.nll for name, paper in PAPER.items()}.items() <= shown.items()


THE_PAPER = """\
LSTM (across sentences) & 1.38
AWD-LSTM (across sentences) & 1.18
LSTM (sentence-wise) & 1.41
AF-only & 2.90 & 0.15 & 2.77
AF / AF & 1.42 & 0.10 & 1.37
AF / SCF & 1.46 & 0.10 & 1.43
IAF / SCF & 1.63 & 0.21 & 1.55

AF / AF & 1.42 & 0.10 & 1.37
AF / AF - NLSq & 1.50 & 0.11 & 1.51
AF / AF - AF hidden & 1.57 & 0.14 & 1.57
AF / AF - AF hidden and NLSq & 1.56 & 0.29 & 1.56

RNN-NADE & 2.31 & 7.05 & 5.6 & 5.19
TSBN & 3.67 & 7.89 & 6.81 & 7.48
STORN & 2.85 & 7.13 & 6.16 & 6.91
NASMC & 2.72 & 7.61 & 6.89 & 3.99
SRNN & 2.94 & 8.2 & 6.28 & 4.74
DMM & 2.77 & 7.83 & 6.83 & 6.39
LSTM & 3.43 & 7.77 & 7.23 & 8.17
AF / AF & 2.39 & 8.19 & 6.92 & 6.53
AF / SCF & 2.56 & 8.26 & 6.95 & 6.64
IAF / SCF & 2.54 & 8.25 & 7.06 & 6.59
"""
"""Tables 1 to 3 of the paper as its source has them: NLL, reconstruction and KL, or NLL on the four sets of music."""


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_papers_numbers_are_the_papers(number):
    shown = fill(TABLES[f"table{number}"], False, {})
    ours: dict[str, list[float]] = {}
    for line in (line for block in shown.blocks for line in block.lines):
        figures = (line.paper, line.paper_reconstruction, line.paper_kl)
        ours.setdefault(line.title, []).extend(figure for figure in figures if figure is not None)
    rows = (row.split(" & ") for row in THE_PAPER.split("\n\n")[number - 1].splitlines())
    assert ours == {title: [float(figure) for figure in figures] for title, *figures in rows}


def test_quoted_rows_are_marked():
    text = fill(TABLES["table1"], False, {})
    for row in as_text(text).splitlines():
        if "AWD-LSTM" in row and not row.startswith("["):
            assert re.search(r"\[1\] +quoted +1\.18$", row)
    assert "not measured by us" in as_text(text)


def test_rows_without_a_result_say_not_run():
    text = as_text(fill(TABLES["table2"], False, {"ptb-af-af": fake("ptb-af-af")}))
    assert text.count("not run") == 3
    assert not re.search(r"nan|None", text)


def test_the_difference_is_ours_minus_the_papers():
    shown = fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.40)})
    line = lines(shown)["jsb-af-af"]
    assert line.difference == pytest.approx(-0.13)
    assert "-0.13" in as_text(shown)
    assert "+0.30" in as_text(fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.83)}))
    assert lines(shown)["jsb-af-scf"].difference is None


def test_the_split_parameters_minutes_and_hardware_are_shown():
    text = as_text(fill(TABLES["table1"], False, {"ptb-af-af": fake("ptb-af-af", 1.5)}))
    for part in (
        "1.5000",
        "± 0.0196",
        "0.2000",
        "1.3300",
        "0.0700",
        "0.10, 1.37",
        "12.5 of 50",
        "1,234,567",
        "3.2 [",
    ):
        assert part in text
    assert "a machine_with & 100 % of $2, torch 2.9.0" in text


def test_a_small_result_is_marked_and_has_no_difference():
    results = {"ptb-af-af-small": fake("ptb-af-af-small", 1.9)}
    shown = fill(TABLES["table1"], True, results)
    assert lines(shown)["ptb-af-af-small"].difference is None
    text = as_text(shown)
    assert "SMALL" in text
    assert "AF / AF (small)" in text
    assert "cannot be compared with the paper's" in text
    assert "paper, full size" in text
    # It never enters the table of the paper's sizes.
    assert "1.9000" not in as_text(fill(TABLES["table1"], False, results))


def test_small_rows_that_were_trained_otherwise_say_so():
    names = ("ptb-af-af-small", "ptb-af-scf-small", "ptb-iaf-scf-small", "ptb-lstm-small")
    text = as_text(fill(TABLES["table1"], True, {name: fake(name) for name in names}))
    notes = re.findall(r"trained otherwise than AF / AF: (.+)", text)
    assert notes == [
        "train.lr 0.01, not 0.005; train.clip 0.25, not 1.0",
        "train.batch_size 16, not 8; train.kl_steps (0, 1500), not (0, 3000)",
    ]


def test_a_run_of_other_sizes_under_a_papers_preset_is_not_compared():
    other = fake("ptb-af-af", 1.9, {"model.prior.context.units": 100})
    shown = fill(TABLES["table1"], False, {"ptb-af-af": other})
    assert lines(shown)["ptb-af-af"].difference is None
    assert "(other sizes)" in as_text(shown)
    assert "model.prior.context.units 100 (preset: 500)" in as_text(shown)


def test_other_data_to_measure_on_is_not_compared():
    assert not fake("ptb-af-af", changes={"data.max_length": 100}).comparable


@pytest.mark.parametrize(
    "changes", [{"train.lr": 5e-4}, {"data.transpose": 3}, {"model.prior.context.dropout": 0.5}, {"seed": 3}]
)
def test_another_way_of_training_is_compared_with_a_note(changes):
    shown = fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.4, changes)})
    assert lines(shown)["jsb-af-af"].difference is not None
    assert f"not as the preset: {next(iter(changes))}" in as_text(shown)


def test_where_a_run_was_computed_is_no_change():
    assert fake("jsb-af-af", changes={"train.device": "cuda", "data.data_dir": "elsewhere"}).changes == {}


def test_synthetic_rows_stand_beside_the_truth():
    known = {"nll": 3.0, "gap": 0.05, "gap_error": 0.01}
    text = as_text(fill(TABLES["synthetic"], True, {"hmm-af-af": fake("hmm-af-af", 3.05, truth=known)}))
    assert "3.0000" in text
    assert "+0.0500 ± 0.0196" in text
    assert "small" not in text


def test_an_exact_model_has_no_split():
    text = as_text(fill(TABLES["table1"], False, {"ptb-lstm": fake("ptb-lstm", 1.4)}))
    assert "exact" in text
    assert "of 1 " not in text


# Formats.


def test_latex_escapes():
    assert latex_escape(r"50 % & a_b #1 {x} $y$ ~ ^ \ ±") == (
        r"50 \% \& a\_b \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{} \textbackslash{} $\pm$"
    )
    latex = as_latex(fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.4)}))
    assert r"a machine\_with \& 100 \% of \$2" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 4
    assert "$-0.13$" in latex
    assert "``nats per note''" in latex
    assert latex.count(r"\begin{table*}") == latex.count(r"\end{table*}") == 4
    for block in re.findall(r"\\begin\{tabular\}\{(.+?)\}(.+?)\\end", latex, re.DOTALL):
        columns, body = block
        for row in body.split(r"\\"):
            cells = re.sub(r"\\(toprule|midrule|bottomrule)", "", row).strip()
            if cells:
                assert len(re.split(r"(?<!\\)&", cells)) == len(columns)


def test_markdown_rows_have_as_many_cells_as_the_header():
    markdown = as_markdown(fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.4)}))
    for block in markdown.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) <= 1
    assert r"a machine\_with" in markdown


def test_json_holds_what_is_shown():
    raw = json.loads(as_json(fill(TABLES["table3"], False, {"jsb-af-af": fake("jsb-af-af", 6.4)})))
    jsb = next(corpus for corpus in raw["corpora"] if corpus["corpus"] == "jsb")
    row = next(row for row in jsb["rows"] if row["preset"] == "jsb-af-af")
    assert row["difference"] == pytest.approx(-0.13)
    assert row["ours"]["metrics"]["nll"] == 6.4
    assert {row["status"] for row in jsb["rows"]} == {"quoted", "not run", "measured"}


def test_files_of_a_table(tmp_path):
    written = write(fill(TABLES["table2"], True, {}), tmp_path / "tables")
    assert [path.name for path in written] == ["table2-small.md", "table2-small.tex", "table2-small.json"]


# Choosing rows.


def test_rows_are_chosen_by_row_corpus_or_preset():
    tables = find_tables("table3")
    assert [p.name for p in choose(tables, False, ["af-af"])] == [
        f"{corpus}-af-af" for corpus in ("nottingham", "piano-midi", "musedata", "jsb")
    ]
    assert next(p.name for p in choose(tables, True, ["jsb"])) == "jsb-lstm-small"
    assert [p.name for p in choose(tables, True, ["jsb-af-af"])] == ["jsb-af-af-small"]
    names = [p.name for p in choose(find_tables("all"), False)]
    ours, beyond = 8 + 16 + 4 + 8 + 4, (11 + 4 * 5) + 11 + (11 + 5)
    assert len(names) == len(set(names)) == ours + beyond


def test_unknown_names_are_one_clear_line():
    with pytest.raises(LatflowError, match=r"no table called 'table4'; accepted: table1, .*all"):
        find_tables("table4")
    with pytest.raises(LatflowError, match=r"no row called 'af-ag' here; near: af-af"):
        choose(find_tables("table2"), False, ["af-ag"])
    with pytest.raises(LatflowError, match="no row called 'jsb' here"):
        choose(find_tables("table1"), False, ["jsb"])


def test_the_command_of_a_preset_chooses_that_preset():
    for table in TABLES.values():
        for small in (False, True):
            for preset in table.presets(small):
                words = command_of(preset.name).split()
                chosen = choose(find_tables(words[2]), "--small" in words, [words[4]])
                assert [p.name for p in chosen] == [preset.name]


# Files.


def test_a_result_comes_back_from_its_file(tmp_path):
    result = fake("jsb-af-af", 6.4)
    path = result_path(tmp_path, "jsb-af-af")
    result.write(path)
    assert Result.read(path) == result
    assert read_results(tmp_path) == {"jsb-af-af": result}
    assert read_results(tmp_path / "none") == {}


def test_what_is_not_finite_is_null_in_the_file(tmp_path):
    path = tmp_path / "jsb-af-af.json"
    fake("jsb-af-af", nll_error=float("nan")).write(path)
    result = Result.read(path)
    assert result.metrics["nll_error"] is None
    assert "6.53" in as_text(fill(TABLES["table3"], False, {"jsb-af-af": result}))


def test_a_term_that_is_not_finite_is_shown_as_such(tmp_path):
    path = tmp_path / "jsb-af-af.json"
    fake("jsb-af-af", negative_elbo=float("inf"), nll_at={"1": float("inf"), "50": 1.5}).write(path)
    result = Result.read(path)
    assert "not finite" in as_text(fill(TABLES["table3"], False, {"jsb-af-af": result}))
    assert "1: not finite, 50: 1.5000" in page({"jsb-af-af": result})


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("metrics", {"nll": None}, "nll in its metrics is None"),
        ("metrics", {"nll": "x"}, "nll in its metrics is 'x'"),
        ("metrics", {"step_name": 3}, "step_name in its metrics is 3"),
        ("curve", {"lr": None}, "its curve has no column lr of 2 epochs"),
        ("curve", {"lr": [1.0]}, "its curve has no column lr of 2 epochs"),
        ("curve", {"lr": ["x", 1.0]}, "the column lr of its curve has what is no number"),
        ("curve", {"updates": [None, None]}, "the column updates of its curve has what is no number"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, part, change, message):
    path = tmp_path / "jsb-af-af.json"
    fake("jsb-af-af").write(path)
    raw = json.loads(path.read_text())
    raw[part] |= change
    path.write_text(json.dumps(raw))
    with pytest.raises(LatflowError, match=message):
        read_results(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "preset": "jsb-af-af"}'])
def test_a_damaged_file_is_named(tmp_path, text):
    path = tmp_path / "jsb-af-af.json"
    path.write_text(text)
    with pytest.raises(LatflowError, match=r"jsb-af-af\.json"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("minutes", None),
        ("parameters", "9"),
        ("versions", [1]),
        ("hardware", 3),
        ("epochs", "x"),
        ("curve", None),
    ],
)
def test_a_field_of_another_kind_is_named(tmp_path, field, value):
    path = tmp_path / "jsb-af-af.json"
    fake("jsb-af-af").write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(LatflowError, match=rf"jsb-af-af\.json is damaged: its {field} is"):
        read_results(tmp_path)
    path.write_text('{"a":' * 100_000)
    with pytest.raises(LatflowError, match=r"jsb-af-af\.json is damaged"):
        read_results(tmp_path)


@pytest.mark.parametrize("line", ["[]", "3", "[" * 100_000, '{"kind": "epoch"}'])
def test_the_status_of_a_damaged_run_is_an_error_that_names_it(tmp_path, line):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps(to_dict(find("hmm-lstm").config)))
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    with pytest.raises(LatflowError, match=r"metrics\.jsonl is damaged"):
        run_status(tmp_path)


def test_a_file_under_the_name_of_another_preset_is_an_error(tmp_path):
    renamed(fake("jsb-af-af"), "jsb-af-scf").write(tmp_path / "jsb-af-af.json")
    with pytest.raises(LatflowError, match="is the result of jsb-af-scf, not of jsb-af-af"):
        read_results(tmp_path)


def test_status_of_a_folder_that_is_no_run(tmp_path):
    assert run_status(tmp_path / "none") == "not run"


def test_curve_is_columns_of_the_epochs():
    lines = [
        {"kind": "step", "epoch": 0, "updates": 5},
        {"kind": "epoch", "epoch": 1, "updates": 9, "train": {"kl": 1.0}, "valid": {"kl": 2.0}},
        {"kind": "epoch", "epoch": 2, "updates": 18, "train": {"kl": None}, "valid": {"kl": 1.5}},
    ]
    curve = curve_of(lines)
    assert curve["epoch"] == [1, 2]
    assert (curve["train_kl"], curve["valid_kl"]) == ([1.0, None], [2.0, 1.5])
    assert curve_of([]) == {}


# The page.


def test_the_page_says_what_was_run_and_what_was_not():
    text = page({"jsb-af-af": fake("jsb-af-af", 6.4), "ptb-lstm-small": fake("ptb-lstm-small", 1.7)})
    assert "- Table 1: characters of the Penn Treebank: 0 of 5 rows" in text
    assert re.search(r"- Table 3: polyphonic music: 1 of 16 rows; not run: nottingham-lstm, .*jsb-lstm", text)
    assert "## Table 1: characters of the Penn Treebank, SMALL models" in text
    assert "Table 2: ablations on the Penn Treebank, SMALL" not in text
    assert "`latflow reproduce table3 --only jsb-af-af --anew`" in text
    assert set(PRESETS) > {"jsb-af-af"}


def test_the_page_without_results_claims_nothing():
    text = page({})
    assert "measured" not in text.replace("not measured", "")
    assert "Small versions of Tables 1 to 3: none" in text


def test_the_command_of_a_changed_run_names_its_fields():
    text = page({"jsb-af-af": fake("jsb-af-af", 6.4, {"train.lr": 5e-4, "train.kl_steps": (9, 9)})})
    assert (
        "latflow train jsb-af-af --train.lr 0.0005 --train.kl_steps '[9, 9]' && latflow reproduce table3"
        in text
    )


def test_the_command_of_a_changed_run_gives_its_config_back():
    changed = {"train.optimizer": "adam", "train.kl_steps": (9, 9), "train.lr": 0.5, "model.position_rank": 4}
    config = evolve(PRESETS["jsb-lstm"].config, changed)
    words = shlex.split(command("jsb-lstm", config).split(" && ")[0])
    assert words[:2] == ["latflow", "train"]
    assert config_of(parse(words[1:])) == config
