"""Lightning, Hugging Face's Trainer and Accelerate, nightly: .ci/nightly.steps installs them."""

from __future__ import annotations

import importlib
import os

import pytest

torch = pytest.importorskip("torch")

from eager import eager, ranks  # noqa: E402


def library(name):
    """Import it; where it is missing, skip the test, or fail if it should be there."""
    return importlib.import_module(name) if os.environ.get("CI") == "true" else pytest.importorskip(name)


def layer(rank):
    torch.manual_seed(rank)
    return torch.nn.Linear(3, 1)


def batches(rank):
    return torch.randn(32, 3, generator=torch.Generator().manual_seed(rank))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def finished(comm, optimizer, model):
    optimizer.finish()
    return comm.is_same_on_all_ranks(model.weight.detach().numpy())


def test_it_is_an_optimizer_of_the_class_that_it_wraps():
    def program(comm):
        with eager(adamw(layer(0)), comm) as optimizer:
            kinds = torch.optim.Optimizer, torch.optim.AdamW
            return [isinstance(one, kind) for one in (optimizer, optimizer.optimizer) for kind in kinds]

    assert ranks(1, program) == [[True] * 4]


@pytest.mark.nightly
@pytest.mark.parametrize("overlap", [False, True])
def test_accelerate(overlap):
    accelerate = library("accelerate")

    def program(comm):
        model = layer(comm.rank)
        optimizer = eager(adamw(model), comm, overlap=overlap)
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=1 if overlap else 2)
        prepared, stepped = accelerator.prepare(model, optimizer)
        for batch in batches(comm.rank).split(8):
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(batch).square().mean())
                if not overlap:
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.1)
                stepped.step()
                stepped.zero_grad()
        return optimizer._steps, finished(comm, optimizer, model)

    assert ranks(1, program) == [(4 if overlap else 2, True)]  # it counts in the process, not in the thread


@pytest.mark.nightly
def test_trainer(tmp_path):
    transformers = library("transformers")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer(0)

        def forward(self, x, labels=None):
            y = self.layer(x)
            return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}

    def program(comm):
        model = Model()
        optimizer = eager(adamw(model), comm, overlap=False)
        arguments = transformers.TrainingArguments(
            str(tmp_path), use_cpu=True, num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True
        )
        data = [{"x": x, "labels": x.sum().reshape(1)} for x in batches(0)]
        trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))
        steps = trainer.train().global_step
        return steps, optimizer._steps, optimizer.param_groups[0]["lr"], finished(comm, optimizer, model.layer)

    assert ranks(1, program) == [(8, 8, 0.0, True)]


@pytest.mark.nightly
@pytest.mark.parametrize("overlap", [False, True])
def test_lightning(tmp_path, overlap):
    lightning = library("pytorch_lightning")

    class Model(lightning.LightningModule):
        def __init__(self, comm):
            super().__init__()
            self.layer = layer(0)
            self.optimizer = eager(adamw(self.layer), comm, overlap=overlap)

        def training_step(self, batch, number):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return [self.optimizer], [torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)]

    def program(comm):
        model = Model(comm)
        options = {} if overlap else {"gradient_clip_val": 0.1, "accumulate_grad_batches": 2}
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, max_epochs=2, logger=False, default_root_dir=tmp_path,
            enable_progress_bar=False, enable_checkpointing=False, **options,
        )  # fmt: skip
        trainer.fit(model, torch.utils.data.DataLoader(batches(0), batch_size=8))
        return (
            model.optimizer._steps,
            model.optimizer.param_groups[0]["lr"],
            finished(comm, model.optimizer, model.layer),
        )

    assert ranks(1, program) == [(8 if overlap else 4, 0.0125, True)]
