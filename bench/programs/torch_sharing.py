"""A tensor for another process: shared through CUDA IPC where the device allows that, else sent as a copy."""

import sys

import torch
import torch.multiprocessing as processes


def work(tasks, answers):
    tensor = tasks.get()
    answers.put(tensor.cuda().sum().item())
    del tensor


if __name__ == "__main__":
    context = processes.get_context("spawn")
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    try:
        x.untyped_storage()._share_cuda_()
        sent = x
    except RuntimeError as error:
        print("shared as a copy:", str(error).splitlines()[0], file=sys.stderr)
        sent = x.cpu()
    tasks, answers = context.SimpleQueue(), context.SimpleQueue()
    worker = context.Process(target=work, args=(tasks, answers))
    worker.start()
    tasks.put(sent)
    print(answers.get())
    worker.join()
    print(worker.exitcode, x.sum().item())
