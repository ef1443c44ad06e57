"""What ends a kernel, and what it prints: each in a process of its own."""

import pytest
from cuda_calls import Alone, Cuda


def printing(cuda: Cuda) -> None:
    from kernel_corpus import compile_text

    source = """
    extern "C" __global__ void talk() {
        if (threadIdx.x == 3)
            printf("%d %5.2f %s %c %u %llx %05d|%%\\n", -7, 2.5, "word", 'x', 4000000000u, 1ull << 40, 42);
        if (threadIdx.x == 3) printf("%hd %hx|\\n", 70000, 0x12345);
        if (threadIdx.x == 3) printf("%s|\\n", (char*)0);
        if (threadIdx.x % 2) printf("thread %u\\n", threadIdx.x);
    }
    """
    module = cuda.cuModuleLoadData(compile_text(source))
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"talk"), block=4)
    cuda.cuCtxSynchronize()


def test_printf(alone: Alone) -> None:
    lines = alone(printing).splitlines()
    assert lines == [
        "-7  2.50 word x 4000000000 10000000000 00042|%",
        "4464 2345|",
        "(null)|",
        "thread 1",
        "thread 3",
    ]


def failing_assertion(cuda: Cuda) -> None:
    from kernel_corpus import compile_text

    source = """
    extern "C" __global__ void check(int* p) {
        assert(threadIdx.x < 3);
        *p = 1;
    }
    """
    module = cuda.cuModuleLoadData(compile_text(source))
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"check"), cuda.device_words(), block=4)
    print(cuda.result("cuCtxSynchronize"), cuda.result("cuMemAlloc", 16))


def test_assert(alone: Alone) -> None:
    assert alone(failing_assertion).split() == ["ERROR_ASSERT"] * 2


def shared_out_of_bounds(cuda: Cuda) -> None:
    head = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
    module = cuda.cuModuleLoadData(
        head + b".shared .b8 s[64]; .reg .b64 %r<3>; mov.u64 %r1, s; st.shared.u32 [%r1+1000000], 1; ret; }"
    )
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), 0)
    print(cuda.result("cuCtxSynchronize"))


def test_shared_memory_has_an_end(alone: Alone) -> None:
    assert alone(shared_out_of_bounds).split() == ["ERROR_ILLEGAL_ADDRESS"]


def misaligned_vector(cuda: Cuda) -> None:
    head = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
    module = cuda.cuModuleLoadData(
        head + b".reg .b64 %r<3>; .reg .b32 %w<5>; ld.param.u64 %r1, [p];"
        b"ld.global.v4.u32 {%w1, %w2, %w3, %w4}, [%r1+4];"
        b"st.global.v4.u32 [%r1], {%w1, %w2, %w3, %w4}; ret; }"  # with fewer used it becomes a narrower load
    )
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), cuda.device_words(16))
    print(cuda.result("cuCtxSynchronize"))


def test_vectors_are_aligned_as_a_whole(alone: Alone) -> None:
    assert alone(misaligned_vector).split() == ["ERROR_MISALIGNED_ADDRESS"]


def unknown_instruction(cuda: Cuda) -> None:
    log = bytes(4096)  # the driver writes into it
    text = (
        b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<3>;\n"
        b"frobnicate.b32 %r1, %r2;\nret; }"
    )
    option = cuda.CUjit_option
    kinds = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    print(cuda.result("cuModuleLoadDataEx", text, 2, kinds, [log, len(log)]))
    print(log.rstrip(bytes(1)).decode())


def test_an_unknown_instruction_is_named_when_its_module_is_loaded(alone: Alone) -> None:
    out = alone(unknown_instruction)
    assert out.startswith("ERROR_INVALID_PTX")
    assert "frobnicate" in out
    assert "line 6" in out


def many_allocations(cuda: Cuda) -> None:
    import time

    from kernel_corpus import compile_text

    source = """
    struct Node { Node* next; unsigned long long value; };
    extern "C" __global__ void lists(unsigned* lost) {
        for (int round = 0; round < 2; ++round) {
            Node* head = nullptr;
            for (unsigned i = 0; i < 256; ++i) {
                Node* node = (Node*)malloc(sizeof(Node));
                if (node == nullptr) { atomicAdd(lost, 1); continue; }
                *node = {head, threadIdx.x * 1000ull + i};
                head = node;
            }
            for (unsigned i = 256; i-- > 0 && head != nullptr;) {
                if (head->value != threadIdx.x * 1000ull + i) atomicAdd(lost, 1);
                Node* next = head->next;
                free(head);
                head = next;
            }
        }
    }
    """
    lost = cuda.device_words()
    module = cuda.cuModuleLoadData(compile_text(source))
    begun = time.monotonic()
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"lists"), lost, block=256)
    cuda.cuCtxSynchronize()
    print(cuda.read(lost)[0], time.monotonic() - begun < 2)


@pytest.mark.alone
def test_lists_of_allocated_nodes(alone: Alone) -> None:
    """65536 of them at a time, each found as quickly as the first."""
    assert alone(many_allocations).split() == ["0", "True"]
