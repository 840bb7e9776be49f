"""Online influence in a Lightning module; 20% of the labels are wrong. Needs `pip install lightning`."""

import functools

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from examples.digits import BATCH, CLASSES, EPOCHS, RATE, digits, flip_labels, network
from sgoif import OnlineInfluence
from sgoif.interop.optional import import_optional

lightning = import_optional("lightning")


class Watched(lightning.LightningModule):
    """Three lines more than an unwatched module: `watch`, `step` and `end_epoch`. Lightning runs the backward pass
    after `training_step`; scope "head", the default, needs the forward pass alone."""

    def __init__(self, n_examples: int, seed: int) -> None:
        super().__init__()
        self.net = network(seed)
        self.influence = OnlineInfluence(self.net, n_examples, CLASSES)

    def training_step(self, batch, number):
        index, x, y = batch
        with self.influence.watch(index, y):
            return F.cross_entropy(self.net(x), y)

    def on_train_batch_end(self, outputs, batch, number):
        self.influence.step(self.optimizers().optimizer)

    def on_train_epoch_end(self):
        self.influence.end_epoch()

    def on_save_checkpoint(self, checkpoint):
        checkpoint["influence"] = self.influence.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.influence.load_state_dict(checkpoint["influence"])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=total)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


@functools.cache
def measure(seed: int = 0) -> dict[str, float]:
    """Return the number of wrong labels and their share among as many highest scores."""
    x, true_labels, _, _ = digits()
    labels, wrong = flip_labels(true_labels, 0.2, seed)
    torch.manual_seed(seed)
    module = Watched(len(labels), seed)
    data = DataLoader(TensorDataset(torch.arange(len(labels)), x, labels), batch_size=BATCH, shuffle=True)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", **quiet).fit(module, data)
    first = module.influence.scores().suspicion.argsort(descending=True)[: int(wrong.sum())]
    return {"wrong": int(wrong.sum()), "found": wrong[first].float().mean().item()}


def main() -> None:
    m = measure(0)
    print(f"Of the {m['wrong']} highest scores {m['found']:.1%} belong to wrong labels; by chance it were 20%.")


if __name__ == "__main__":
    main()
