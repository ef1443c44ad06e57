"""Real models with random weights: WORKLOADS[name]() builds one and returns what makes a step.

Nothing is downloaded; weights are made on the GPU, where that takes no time. A step ends when the GPU is
done. Inference is eager and of batch 1, training autocast to bfloat16.
"""

import functools

import torch

torch.manual_seed(1)


def vision(name, batch):
    """A model of torchvision for inference in half precision."""
    import torchvision

    model = getattr(torchvision.models, name)().eval().half()
    return inference(model, torch.randn(batch, 3, 224, 224, dtype=torch.half))


def vision_training(name, batch):
    import torchvision

    model = getattr(torchvision.models, name)().train()
    images = torch.randn(batch, 3, 224, 224)
    labels = torch.randint(0, 1000, (batch,))
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    return training(optimizer, lambda: criterion(model(images), labels))


def bert(batch, tokens):
    import transformers

    model = transformers.BertModel(transformers.BertConfig()).eval().half()
    return inference(model, torch.randint(0, 30000, (batch, tokens)))


def bert_training(batch, tokens):
    import transformers

    model = transformers.BertModel(transformers.BertConfig()).train()
    words = torch.randint(0, 30000, (batch, tokens))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    return training(optimizer, lambda: model(words).last_hidden_state.float().pow(2).mean())


def gpt2_training(batch, tokens):
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).train()
    words = torch.randint(0, 30000, (batch, tokens))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    return training(optimizer, lambda: model(words, labels=words).loss)


def llama_decoding(batch, context):
    """One token after another behind a context that stays as long as it is, 1.1 billion parameters."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=2048,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, 32000, (batch, context))
    with torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values
    token = torch.randint(0, 32000, (batch, 1))

    def step():
        with torch.no_grad():
            model(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)
        torch.cuda.synchronize()

    return step


def inference(model, data):
    def step():
        with torch.no_grad():
            model(data)
        torch.cuda.synchronize()

    return step


def training(optimizer, loss):
    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            result = loss()
        result.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    return step


def built(make, *arguments):
    """Only while it is built, as a default device costs every call of PyTorch's some time."""
    with torch.device("cuda"):
        return make(*arguments)


WORKLOADS = {
    "resnet50_inf": functools.partial(built, vision, "resnet50", 1),
    "bert_inf": functools.partial(built, bert, 1, 128),
    "llama1b_decode": functools.partial(built, llama_decoding, 1, 512),
    "resnet50_train": functools.partial(built, vision_training, "resnet50", 64),
    "gpt2_train": functools.partial(built, gpt2_training, 8, 512),
    "bert_train": functools.partial(built, bert_training, 16, 256),
}
