"""Real models with random weights: WORKLOADS[name]() builds one and returns what makes a step.

Nothing is downloaded; weights are made on the GPU, where that takes no time. A step ends when the GPU is
done. Inference is of batch 1, training autocast to bfloat16. Eager, but for those that are named so: a step
of these is a CUDA graph, as inference servers and torch.compile's mode reduce-overhead have it, and those
that are served are asked after every two milliseconds of work for the host. Those that are asked sleep for
20 ms before each step, which is none of it, and a step ends with its result in the host's memory. One that is
fed copies its next input meanwhile; an ensemble is two models at once, each on a stream of its own.
"""

import functools
import time

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

    def work():
        with torch.no_grad():
            model(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)

    return work


def inference(model, data):
    def work():
        with torch.no_grad():
            return model(data)

    return work


def training(optimizer, loss):
    def work():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            result = loss()
        result.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return work


def built(make, *arguments):
    """Only while it is built, as a default device costs every call of PyTorch's some time."""
    with torch.device("cuda"):
        work = make(*arguments)

    def step():
        work()
        torch.cuda.synchronize()

    return step


def asked(make, *arguments):
    """Likewise, what the model says of one input."""
    with torch.device("cuda"):
        work = make(*arguments)

    def step():
        work().cpu()

    step.pause_s = 0.02
    return step


def recorded(make, *arguments):
    """Likewise, as one graph."""
    with torch.device("cuda"):
        work = make(*arguments)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        work()

    def replay():
        graph.replay()

    replay.work = work  # the graph does not keep its weights
    return replay


def graphed(make, *arguments):
    """What makes a step is one graph."""
    replay = recorded(make, *arguments)

    def step():
        replay()
        torch.cuda.synchronize()

    return step


def fed(name, batch):
    """A model of torchvision whose next images are copied on a stream of their own while it sees these."""
    import torchvision

    with torch.device("cuda"):
        model = getattr(torchvision.models, name)().eval().half()
    images = torch.randn(batch, 3, 224, 224, dtype=torch.half).pin_memory()
    copying, ready = torch.cuda.Stream(), torch.cuda.Event()

    def load():
        with torch.cuda.stream(copying):
            coming = images.to("cuda", non_blocking=True)
            ready.record()
        return coming

    coming = load()

    def step():
        nonlocal coming
        ready.wait()
        current, coming = coming, load()
        with torch.no_grad():
            answer = model(current)
        current.record_stream(torch.cuda.current_stream())
        answer.cpu()

    return step


def together(*works):
    """Several at once for one answer, each on a stream of its own."""
    streams = [torch.cuda.Stream() for _ in works]
    torch.cuda.synchronize()

    def step():
        for stream, work in zip(streams, works, strict=True):
            with torch.cuda.stream(stream):
                work()
        for stream in streams:
            stream.synchronize()

    return step


def ensemble():
    with torch.device("cuda"):
        return together(vision("resnet50", 1), bert(1, 128))


def ensemble_served():
    return behind_work(together(recorded(vision, "resnet50", 1), recorded(vision, "vit_b_16", 1)))


def served(make, *arguments):
    return behind_work(graphed(make, *arguments))


def behind_work(step):
    """After two milliseconds of work for the host."""

    def answer():
        until = time.perf_counter() + 2e-3
        while time.perf_counter() < until:
            pass
        step()

    return answer


WORKLOADS = {
    "resnet50_inf": functools.partial(built, vision, "resnet50", 1),
    "bert_inf": functools.partial(built, bert, 1, 128),
    "llama1b_decode": functools.partial(built, llama_decoding, 1, 512),
    "resnet50_train": functools.partial(built, vision_training, "resnet50", 64),
    "gpt2_train": functools.partial(built, gpt2_training, 8, 512),
    "bert_train": functools.partial(built, bert_training, 16, 256),
    "resnet50_asked": functools.partial(asked, vision, "resnet50", 1),
    "vit_asked": functools.partial(asked, vision, "vit_b_16", 1),
    "resnet50_fed": functools.partial(fed, "resnet50", 32),
    "ensemble": ensemble,
    "resnet50_served": functools.partial(served, vision, "resnet50", 1),
    "vit_served": functools.partial(served, vision, "vit_b_16", 1),
    "ensemble_served": ensemble_served,
    "vit_graphed": functools.partial(graphed, vision, "vit_b_16", 1),
    "resnet50_train_graphed": functools.partial(graphed, vision_training, "resnet50", 64),
}
