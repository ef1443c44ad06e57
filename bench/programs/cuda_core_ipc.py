"""cuda.core: buffers of an IPC-enabled memory resource and an IPC event, used by another process."""

import ctypes
import multiprocessing as processes

import cuda.core as core


def words(device, stream, buffer):
    """What is in a buffer, by a copy to pinned memory."""
    pinned = core.LegacyPinnedMemoryResource().allocate(buffer.size)
    buffer.copy_to(pinned, stream=stream)
    stream.sync()
    return list((ctypes.c_uint32 * (buffer.size // 4)).from_address(int(pinned.handle)))[:3]


def work(tasks, answers):
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    event, *buffers = tasks.get()
    stream.wait(event)
    answers.put([(buffer.size, buffer.is_mapped, words(device, stream, buffer)) for buffer in buffers])
    owner = buffers[0].memory_resource
    try:
        owner.allocate(64, stream=stream)
    except TypeError as error:
        answers.put([owner.is_mapped, str(error)])
    for number, buffer in enumerate(buffers):
        buffer.fill(16 + number, stream=stream)
    stream.sync()
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    answers.put("closed")


if __name__ == "__main__":
    context = processes.get_context("spawn")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    resource = core.DeviceMemoryResource(
        device, core.DeviceMemoryResourceOptions(max_size=32 << 20, ipc_enabled=True)
    )
    print(resource.is_ipc_enabled, resource.is_mapped)
    buffers = [resource.allocate(size, stream=stream) for size in (64, 4096, 4 << 20)]
    for number, buffer in enumerate(buffers):
        buffer.fill(1 + number, stream=stream)
    event = stream.record(options=core.EventOptions(ipc_enabled=True))
    stream.sync()
    tasks, answers = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(tasks, answers))
    worker.start()
    tasks.put([event, *buffers])
    for _ in range(3):
        print(answers.get())
    worker.join()
    print(worker.exitcode, [words(device, stream, buffer) for buffer in buffers])
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    print(resource.attributes.used_mem_current)
    resource.close()
