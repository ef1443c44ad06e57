"""A small transformer: AdamW, autocast, two streams, a few steps."""

import torch

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Embedding(1000, 256),
    *(torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True) for _ in range(4)),
    torch.nn.Linear(256, 1000),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
tokens = torch.randint(0, 1000, (8, 128), device="cuda")
side = torch.cuda.Stream()
for _ in range(5):
    with torch.cuda.stream(side):
        noise = torch.zeros(8, 128, 1000, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(
            (model(tokens) + noise).flatten(0, 1).float(), tokens.flatten()
        )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(round(loss.item(), 2))
