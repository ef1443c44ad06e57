// The CUresult numbers that the channel itself returns. cuda.h is left out on purpose: the producer needs
// nothing but libc, so that it can live in any process.
#pragma once

namespace fikit {

using Status = int;  // a CUresult

namespace status {
inline constexpr Status interrupted = -1;  // no CUresult: the caller wanted to wait no longer
inline constexpr Status success = 0;
inline constexpr Status invalid_value = 1;
inline constexpr Status out_of_memory = 2;
inline constexpr Status not_initialized = 3;
inline constexpr Status operating_system = 304;
inline constexpr Status invalid_handle = 400;
inline constexpr Status not_ready = 600;
inline constexpr Status context_is_destroyed = 709;
inline constexpr Status launch_failed = 719;
inline constexpr Status not_permitted = 800;
inline constexpr Status driver_mismatch = 803;  // an executor of another release's
}  // namespace status

}  // namespace fikit
