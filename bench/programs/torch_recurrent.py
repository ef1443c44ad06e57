"""Recurrent networks, CTC, embeddings, packed sequences: cuDNN's and PyTorch's own."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(2)
torch.backends.cudnn.allow_tf32 = False
x = torch.randn(20, 6, 24, device="cuda", requires_grad=True)
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    layer = kind(24, 32, num_layers=2, bidirectional=True).cuda()
    y, _ = layer(x)
    x.grad = None
    y.square().mean().backward()
    print(
        kind.__name__, y.abs().sum().item(), x.grad.abs().sum().item(), layer.weight_hh_l1.grad.norm().item()
    )
    lengths = torch.tensor([20, 17, 11, 8, 3, 1])
    packed = pack_padded_sequence(x, lengths)
    out, sizes = pad_packed_sequence(layer(packed)[0])
    print(out.abs().sum().item(), sizes.tolist())
cell = nn.LSTMCell(24, 16).cuda()
state = (torch.zeros(6, 16, device="cuda"), torch.zeros(6, 16, device="cuda"))
for step in range(20):
    state = cell(x[step], state)
print(state[0].sum().item(), state[1].sum().item())

scores = torch.randn(50, 4, 20, device="cuda").log_softmax(2).requires_grad_()
targets = torch.randint(1, 20, (4, 30), dtype=torch.int32)
lengths = torch.tensor([30, 25, 20, 15], dtype=torch.int32)
for device in ("cuda", "cpu"):  # targets of the host: cuDNN's
    loss = nn.functional.ctc_loss(
        scores, targets.to(device), torch.full((4,), 50, dtype=torch.int32), lengths
    )
    scores.grad = None
    loss.backward()
    print("ctc", loss.item(), scores.grad.abs().sum().item())
words = torch.randint(0, 1000, (64, 12), device="cuda")
table = nn.Embedding(1000, 40, sparse=True).cuda()
table(words).sum().backward()
print(table.weight.grad.coalesce().values().sum().item())
for mode in ("sum", "mean", "max"):
    bag = nn.EmbeddingBag(1000, 40, mode=mode).cuda()
    out = bag(words.flatten(), torch.arange(0, 768, 12, device="cuda"))
    out.square().sum().backward()
    print(mode, out.sum().item(), bag.weight.grad.norm().item())
