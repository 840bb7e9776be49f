"""Latent classes: the matching, the log-odds, and that classes are found whatever most of their labels say."""

import pytest
import torch

from sgoif import InfluenceError
from sgoif.label_noise import latent_classes
from sgoif.label_noise.assignment import linear_assignment
from sgoif.label_noise.latent_classes import START_LENGTHS, LatentClasses, fit_latent_classes
from sgoif.label_noise.vmf_mixture import VMFMixtures, concentration, on_sphere


def noisy(transition: torch.Tensor, per_class: int = 300, spread: float = 0.3, seed: int = 0):
    """Predictions around the rows of a noise matrix, and labels drawn from it: (predictions, labels, true labels)."""
    generator = torch.Generator().manual_seed(seed)
    true_labels = torch.arange(len(transition)).repeat_interleave(per_class)
    rows = transition[true_labels]
    labels = torch.multinomial(rows, 1, generator=generator)[:, 0]
    logits = rows.clamp(min=1e-2).log() + spread * torch.randn(rows.shape, generator=generator)
    return logits.softmax(1), labels, true_labels


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_matching_is_scipys(n):
    assignment = pytest.importorskip("scipy.optimize").linear_sum_assignment
    for seed in range(5):
        joint = torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rows, columns = assignment(-joint.numpy())
        found = linear_assignment(joint)
        assert sorted(found.tolist()) == list(range(n))
        assert joint[range(n), found].sum().item() == pytest.approx(joint.numpy()[rows, columns].sum())


def test_log_odds_are_bayes_rule():
    predictions, labels = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]), torch.tensor([0, 1])
    transition = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.5, 0.4]])
    classes = LatentClasses(torch.eye(3), 5.0, torch.tensor([0.5, 0.3, 0.2]), transition, torch.arange(3), 0.0, 1.0)
    weight = classes.class_weights * torch.exp(5.0 * on_sphere(predictions)) * transition[:, labels].T
    right = weight[[0, 1], labels] / weight.sum(1)
    torch.testing.assert_close(classes.log_odds(predictions, labels), torch.log((1 - right) / right))


def test_concentration_inverts_the_mean_length():
    """The mean of a von Mises-Fisher sample has the length that its concentration says; here on the circle of C = 2,
    by numerical integration."""
    angle = torch.linspace(-torch.pi, torch.pi, 20_001, dtype=torch.float64)
    for kappa in (2.0, 10.0, 50.0):
        density = torch.exp(kappa * (angle.cos() - 1))
        length = float((density * angle.cos()).sum() / density.sum())
        assert float(concentration(torch.tensor(length), 2)) == pytest.approx(kappa, rel=0.1)


def test_mixtures_that_are_fitted_at_once_are_those_fitted_one_by_one():
    """Though they settle after different numbers of iterations."""
    predictions, labels, _ = noisy(torch.full((4, 4), 0.2) + 0.2 * torch.eye(4), spread=0.6)
    u = on_sphere(predictions).double()
    centres = torch.nn.functional.normalize(torch.zeros(4, 4).double().index_add_(0, labels, u), dim=1)
    together = VMFMixtures.from_centres(centres, START_LENGTHS).fit(u)
    alone = [VMFMixtures.from_centres(centres, [length]).fit(u) for length in START_LENGTHS]
    for part in ("centres", "kappa", "weights"):
        torch.testing.assert_close(getattr(together, part), torch.cat([getattr(m, part) for m in alone]))
    assert float(together.tightest.kappa) == pytest.approx(max(float(m.kappa) for m in alone), rel=1e-9)


def test_clean_labels_are_left_alone():
    predictions, labels, _ = noisy(torch.eye(5) * 0.96 + 0.008, spread=0.2)
    labels = torch.arange(5).repeat_interleave(300)
    classes = fit_latent_classes(predictions, labels)
    assert classes.log_odds(predictions, labels).sigmoid().sum() < 1
    assert (classes.transition.diagonal() > 0.99).all()


def test_a_class_is_found_though_most_of_its_labels_are_wrong():
    """Class 0 is given label 1 more often than its own; label 1 is still class 1's by the one-to-one matching."""
    transition = torch.tensor([[0.40, 0.50, 0.10], [0.0, 0.90, 0.10], [0.2, 0.0, 0.8]])
    predictions, labels, true_labels = noisy(transition)
    assert (predictions.argmax(1) == true_labels).float().mean() < 0.8  # the predictions themselves are taken in
    classes = fit_latent_classes(predictions, labels)
    joint = classes.concentration * on_sphere(predictions) @ classes.centres.T + classes.class_weights.log()
    assert (classes.class_of_label[true_labels] == joint.argmax(1)).float().mean() > 0.95
    torch.testing.assert_close(classes.transition, transition, atol=0.06, rtol=0)
    wrong = classes.log_odds(predictions, labels) > 0
    assert (wrong == (labels != true_labels)).float().mean() > 0.95
    assert float(classes.log_odds(predictions, labels).sigmoid().sum()) == pytest.approx(
        int((labels != true_labels).sum()), rel=0.1
    )


def test_a_label_that_its_last_class_shuns_goes_to_most_of_its_examples():
    """Classes 0 and 2 mostly have labels 1 and 0, so one to one leaves label 2 to class 1, which is never given it."""
    transition = torch.tensor([[0.2, 0.7, 0.1], [0.1, 0.9, 0.0], [0.6, 0.0, 0.4]])
    predictions, labels, _ = noisy(transition)
    classes = fit_latent_classes(predictions, labels)
    assert classes.class_of_label[2] == classes.class_of_label[0] != classes.class_of_label[1]
    torch.testing.assert_close(classes.transition[2], transition[2], atol=0.06, rtol=0)


def test_where_the_labels_of_two_classes_are_mostly_swapped_nothing_can_tell():
    transition = torch.tensor([[0.2, 0.8, 0.0], [0.8, 0.2, 0.0], [0.0, 0.0, 1.0]])
    predictions, labels, true_labels = noisy(transition)
    wrong = fit_latent_classes(predictions, labels).log_odds(predictions, labels) > 0
    swapped = true_labels < 2
    assert (wrong == (labels != true_labels))[swapped].float().mean() < 0.1  # as the module's docstring says


def test_examples_with_right_labels_can_tell():
    """The same, and class 3 is like class 0; ten known examples of each class, one label without any."""
    transition = torch.tensor([[0.2, 0.8, 0.0, 0.0], [0.8, 0.2, 0.0, 0.0], [0.0, 0.0, 0.7, 0.3], [0.0, 0.0, 0.6, 0.4]])
    predictions, labels, true_labels = noisy(transition)
    said, _, right = noisy(transition, per_class=10, seed=1)
    trusted = said[right != 3], right[right != 3]
    classes = fit_latent_classes(predictions, labels, trusted)
    wrong = classes.log_odds(predictions, labels) > 0
    assert (wrong == (labels != true_labels))[true_labels < 2].float().mean() > 0.95
    torch.testing.assert_close(classes.transition[:2], transition[:2], atol=0.06, rtol=0)
    assert classes.class_of_label[:2].tolist() == [0, 1]  # classes start where the known ones are


def test_a_few_examples_that_look_like_another_class_do_not_rename_a_label():
    """Two of the three known examples of class 4 are taken for class 0, as where a network confuses many classes."""
    transition = torch.eye(5) * 0.75 + 0.05
    predictions, labels, true_labels = noisy(transition)
    said, _, right = noisy(transition, per_class=3, seed=1)
    said[right == 4] = said[torch.tensor([0, 1, 14])]
    classes = fit_latent_classes(predictions, labels, (said, right))
    assert classes.class_of_label.unique().numel() == 5
    wrong = classes.log_odds(predictions, labels) > 0
    assert (wrong == (labels != true_labels)).float().mean() > 0.95


def test_a_label_without_examples_and_rows_in_parts(monkeypatch):
    predictions, labels, _ = noisy(torch.eye(4) * 0.9 + 0.025)
    predictions, labels = predictions[labels != 3], labels[labels != 3]
    whole = fit_latent_classes(predictions, labels).log_odds(predictions, labels)
    assert torch.isfinite(whole).all()
    for module in ("latent_classes", "vmf_mixture"):
        monkeypatch.setattr(f"sgoif.label_noise.{module}.CHUNK_ROWS", 100)
    torch.testing.assert_close(
        fit_latent_classes(predictions, labels).log_odds(predictions, labels), whole, atol=1e-2, rtol=1e-3
    )


def test_predictions_that_gather_nowhere_are_not_trusted():
    predictions = torch.randn(2000, 10, generator=torch.Generator().manual_seed(0)).softmax(1)
    assert fit_latent_classes(predictions, predictions.argmax(1)).latent_weight == 0
    assert fit_latent_classes(*noisy(torch.eye(5) * 0.9 + 0.02)[:2]).latent_weight == 1
    parts = [
        LatentClasses(torch.eye(2), 1.0, torch.ones(2), torch.eye(2), torch.arange(2), entropy, stability).latent_weight
        for entropy, stability in ((0.03, 0.5), (0.045, 0.9), (0.07, 1.0), (0.0, 0.4), (0.045, 0.4), (0.0, 0.2))
    ]
    assert parts == pytest.approx([1.0, 0.5, 0.0, 0.5, 0.25, 0.0])


def test_a_cloud_that_falls_apart_differently_each_time_is_not_trusted():
    """With a hundred labels the classes of a shapeless cloud are clear-cut, and of no meaning."""
    logits = 0.3 * torch.randn(3000, 100, generator=torch.Generator().manual_seed(0))
    classes = fit_latent_classes(
        logits.softmax(1), torch.randint(0, 100, (3000,), generator=torch.Generator().manual_seed(1))
    )
    assert classes.class_entropy < 0.03 and classes.stability < 0.3 and classes.latent_weight == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_replays_iterations_finds_the_same():
    predictions, labels, _ = noisy(0.6 * torch.eye(12) + 0.4 / 12, spread=1.0)
    here, there = fit_latent_classes(predictions, labels), fit_latent_classes(predictions.cuda(), labels.cuda())
    assert there.concentration == pytest.approx(here.concentration, rel=1e-3)
    assert (there.class_entropy, there.stability) == pytest.approx((here.class_entropy, here.stability), abs=1e-3)
    for name in ("centres", "class_weights", "label_probabilities", "class_of_label"):
        torch.testing.assert_close(getattr(there, name).cpu(), getattr(here, name), atol=1e-3, rtol=1e-2)


def test_shapes_are_checked():
    with pytest.raises(InfluenceError, match=r"predictions \(3, 2\) and labels \(2,\)"):
        fit_latent_classes(torch.ones(3, 2), torch.zeros(2, dtype=torch.long))


def test_over_how_many_labels_wrong_ones_are_scattered():
    def found(transition, **more):
        predictions, labels, _ = noisy(transition, spread=0.2, **more)
        return fit_latent_classes(predictions, labels)

    assert 8 < found(0.2 / 9 + (0.8 - 0.2 / 9) * torch.eye(10)).effective_error_classes <= 9
    assert found(0.8 * torch.eye(10) + 0.2 * torch.eye(10).roll(1, 0)).effective_error_classes < 1.3
    many = found(0.3 / 39 + (0.7 - 0.3 / 39) * torch.eye(40), per_class=100)  # thirty wrong labels a class, of 39
    assert 18 < many.effective_error_classes < 30 and 0.4 < many.noise_scatter < 1
    groups = torch.eye(10).repeat_interleave(4, 0).repeat_interleave(4, 1)  # each class is given three others
    assert found(0.7 * torch.eye(40) + 0.1 * (groups - torch.eye(40)), per_class=100).noise_scatter == 0


def test_no_wrong_label_is_scattered_nowhere():
    classes = LatentClasses(torch.eye(3), 1.0, torch.ones(3) / 3, torch.eye(3), torch.arange(3), 0.0, 1.0)
    assert classes.effective_error_classes == 0 and classes.noise_scatter == 0


def starts(monkeypatch, u, labels, trusted=None):
    """The centres that EM starts from, and how many points choose among the starts and are fitted in the end."""
    seen = []

    class Watched:
        tightest = property(lambda self: self)

        @classmethod
        def from_centres(cls, centres, lengths):
            seen.append(centres)
            return cls()

        def fit(self, points):
            seen.append(len(points))
            return self

    monkeypatch.setattr(latent_classes, "VMFMixtures", Watched)
    latent_classes._fit_mixture(u, labels, trusted)
    return seen


def test_a_class_starts_at_its_trusted_points_else_at_its_own_else_in_its_corner(monkeypatch):
    u = torch.tensor([[0.6, 0.8, 0.0, 0.0], [0.8, 0.6, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    trusted = torch.tensor([[0.0, 0.6, 0.8, 0.0]]), torch.tensor([1])
    centres, *counts = starts(monkeypatch, u, torch.tensor([0, 0, 1]), trusted)
    half = 0.5**0.5
    expected = [[half, half, 0, 0], [0, 0.6, 0.8, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    torch.testing.assert_close(centres, torch.tensor(expected))
    assert counts == [3, 3]
    centres, *_ = starts(monkeypatch, u, torch.tensor([3, 3, 3]))
    torch.testing.assert_close(centres[:3], torch.eye(4)[:3])


@pytest.mark.parametrize(("n", "classes", "chosen"), [(25_000, 3, 12_500), (19_999, 3, 19_999), (45_000, 200, 22_500)])
def test_ten_thousand_points_or_a_hundred_a_class_choose_among_the_starts(monkeypatch, n, classes, chosen):
    u = torch.ones(1, classes).expand(n, classes)
    assert starts(monkeypatch, u, torch.zeros(n, dtype=torch.long))[1:] == [chosen, n]
