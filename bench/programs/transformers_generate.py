"""generate() of transformers with a static cache: a small Llama with random weights, greedy and sampled."""

import torch
import transformers

torch.manual_seed(1)
settings = transformers.LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
model = transformers.LlamaForCausalLM(settings).cuda().eval()
tokens = torch.randint(2, 1000, (2, 12), device="cuda")
for cache, compiled in (("dynamic", False), ("static", False), ("static", True)):
    out = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=12,
        do_sample=False,
        cache_implementation=cache,
        disable_compile=not compiled,
    )
    print(cache, compiled, out[:, 12:].tolist(), flush=True)
