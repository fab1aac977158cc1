"""What a label and a shift add to the condition of a sequence."""

from __future__ import annotations

import torch

from latflow.models.condition import Condition


def test_rows_of_labels_and_shifts_are_added():
    condition = Condition(labels=3, shifts=2, size=4)
    assert condition.label is not None
    assert condition.shift is not None
    label, shift = torch.tensor([2, -1, 0]), torch.tensor([-2, 0, 1])
    with torch.no_grad():
        found = condition(3, label, shift)
        expected = torch.stack(
            [
                condition.label[2] + condition.shift[0],
                condition.label.mean(0) + condition.shift[2],  # of no label: their mean
                condition.label[0] + condition.shift[3],
            ]
        )
        torch.testing.assert_close(found, expected)
        # Where nothing is said: no label, no shift.
        torch.testing.assert_close(condition(1), (condition.label.mean(0) + condition.shift[2])[None])


def test_either_alone():
    labels, shifts = Condition(labels=2, shifts=0, size=3), Condition(labels=0, shifts=1, size=3)
    assert labels.label is not None
    assert labels.shift is None
    assert shifts.shift is not None
    assert shifts.label is None
    with torch.no_grad():
        torch.testing.assert_close(labels(2, torch.tensor([1, 0])), labels.label[[1, 0]])
        torch.testing.assert_close(shifts(2, None, torch.tensor([1, -1])), shifts.shift[[2, 0]])
