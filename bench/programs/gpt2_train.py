"""GPT-2 of transformers, random weights, three training steps."""

import torch
import transformers

torch.manual_seed(1)
settings = transformers.GPT2Config(n_layer=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = transformers.GPT2LMHeadModel(settings).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
tokens = torch.randint(0, 30000, (4, 256), device="cuda")
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(round(loss.item(), 2))
