"""What fikitd does not serve of a driver's contract, by test; docs/unmodified-programs.md tells of each."""

HOST_POOLS = "kernels reach a host pool's memory without being let in"
LIMITS = {
    "test_driver_green.py::test_a_stream_of_a_green_context_keeps_to_its_sms": "the gate decides",
    "test_driver_host_pools.py::test_a_kernel_that_is_not_let_into_a_host_pool": HOST_POOLS,
    "test_driver_waits.py::test_freeing_memory_waits_for_running_kernels": "freed memory goes later instead",
    "test_driver_waits.py::test_bringing_a_library_to_the_gpu_waits_for_running_kernels": "it is there",
    "test_driver_waits.py::test_mapping_memory_does_not_wait": "unmapping waits for the program's own work",
    "test_driver_waits.py::test_who_waits_for_streams_that_wait_for_values": "loading waits for no stream",
}


def reason(file: str, test: str) -> str | None:
    """Why a test, or all of its file's, must fail through the shim; None where it must pass."""
    return LIMITS.get(file) or LIMITS.get(f"{file}::{test}")
