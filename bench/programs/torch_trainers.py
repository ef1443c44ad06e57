"""Trainers over PyTorch: Lightning's, accelerate's and transformers', each a few steps of a small model."""

import logging
import os
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import pytorch_lightning as lightning
import torch
from accelerate import Accelerator
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

torch.manual_seed(0)
points = torch.randn(128, 16)
labels = (points.sum(dim=1) > 0).long()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points, labels), batch_size=32)
module = Module()
options = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
}
lightning.Trainer(accelerator="gpu", devices=1, max_epochs=3, precision="bf16-mixed", **options).fit(
    module, data
)
print(len(module.losses), round(module.losses[-1], 2))

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
net = torch.nn.Linear(16, 2)
net, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters(), 0.01), data)
for batch, answer in loader:
    with accelerator.accumulate(net):
        loss = torch.nn.functional.cross_entropy(net(batch), answer)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(round(loss.item(), 2), accelerator.device.type)

config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)
model = BertForSequenceClassification(config)
texts = [{"input_ids": torch.arange(i, i + 12) % 100, "labels": i % 2} for i in range(32)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=6,
        per_device_train_batch_size=8,
        report_to=[],
        bf16=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        dataloader_num_workers=0,
        seed=1,
    )
    trainer = Trainer(model, arguments, train_dataset=texts)
    trainer.remove_callback(PrinterCallback)
    result = trainer.train()
print(result.global_step, round(result.training_loss, 1))
