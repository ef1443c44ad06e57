"""PyTorch from several threads, each with streams of its own: events, waits, memory that crosses streams."""

import threading

import torch

torch.manual_seed(3)
weights = torch.randn(256, 256, device="cuda", dtype=torch.float64)
answers = {}


def work(number):
    generator = torch.Generator(device="cuda").manual_seed(number)
    stream = torch.cuda.Stream(priority=-(number % 2))
    side = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        begin.record()
        x = torch.randn(64, 256, device="cuda", dtype=torch.float64, generator=generator)
        for _ in range(20):
            x = torch.tanh(x @ weights / 16)
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            y = (x * x).sum()
            x.record_stream(side)
        del x
        filler = [torch.zeros(64, 256, device="cuda", dtype=torch.float64) for _ in range(4)]
        stream.wait_event(side.record_event())
        total = y + sum(each.sum() for each in filler)
        end.record()
    end.synchronize()
    answers[number] = (total.item(), end.query(), begin.elapsed_time(end) > 0)


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
for number in sorted(answers):
    print(number, *answers[number])
held = torch.cuda.Stream()
with torch.cuda.stream(held):
    torch.cuda._sleep(200_000_000)
    late = held.record_event()
print(late.query(), torch.ones(10, device="cuda").sum().item())
late.synchronize()
print(late.query(), held.query())
external = torch.cuda.ExternalStream(held.cuda_stream)
with torch.cuda.stream(external):
    print(torch.arange(10, device="cuda").sum().item(), external == held)
