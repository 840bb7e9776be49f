"""Online influence in a timm training loop (its network, loss, optimiser, schedule); 20% of the labels are wrong."""

import functools

import timm
import torch
import torch.nn.functional as F
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2

from examples.digits import BATCH, CLASSES, digits, flip_labels
from sgoif import OnlineInfluence

EPOCHS = 4


@functools.cache
def measure(seed: int = 0) -> dict[str, float]:
    """Return the number of wrong labels and their share among as many highest scores."""
    x, true_labels, _, _ = digits()
    labels, wrong = flip_labels(true_labels, 0.2, seed)
    x = F.interpolate(x, size=16)
    torch.manual_seed(seed)
    model = timm.create_model("test_resnet", num_classes=CLASSES, in_chans=1)
    loss_of = LabelSmoothingCrossEntropy(0.1)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=4e-3, weight_decay=0.05)
    updates = -(-len(labels) // BATCH)
    scheduler, epochs = create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=EPOCHS, warmup_epochs=1, updates_per_epoch=updates, step_on_epochs=False
    )
    with OnlineInfluence(model, len(labels), CLASSES, total_steps=epochs * updates) as influence:
        for epoch in range(epochs):
            for number, index in enumerate(torch.randperm(len(labels)).split(BATCH)):
                with influence.watch(index, labels[index]):
                    loss_of(model(x[index]), labels[index]).backward()
                optimizer.step()
                optimizer.zero_grad()
                influence.step(optimizer)
                scheduler.step_update(epoch * updates + number + 1)
            influence.end_epoch()
    first = influence.scores().suspicion.argsort(descending=True)[: int(wrong.sum())]
    return {"wrong": int(wrong.sum()), "found": wrong[first].float().mean().item()}


def main() -> None:
    m = measure(0)
    print(f"Of the {m['wrong']} highest scores {m['found']:.1%} belong to wrong labels; by chance it were 20%.")


if __name__ == "__main__":
    main()
