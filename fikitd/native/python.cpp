// The binding of the dispatch core: the only file that knows Python. Every call releases the interpreter
// lock; the dispatch thread never takes it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "core.hpp"

namespace nb = nanobind;
using namespace fikit;

namespace {

// What tenants have named or said may be no text at all.
nb::str text(const std::string& from) {
    return nb::steal<nb::str>(
        PyUnicode_DecodeUTF8(from.data(), static_cast<Py_ssize_t>(from.size()), "replace"));
}

nb::dict describe_gate(const SessionSnapshot& session) {
    const scheduling::SessionStatistics& statistics = session.gate;
    nb::dict refused;
    for (unsigned reason = 0; reason < scheduling::refusals; ++reason)
        if (statistics.refused[reason] > 0)
            refused[scheduling::refusal_names[reason]] = statistics.refused[reason];
    nb::dict gate;
    gate["filled"] = statistics.filled;
    gate["filled_ns"] = statistics.filled_time;
    gate["confined"] = statistics.confined;
    gate["confined_ns"] = statistics.confined_time;
    gate["refused"] = refused;
    gate["steps"] = statistics.steps;
    gate["step_ns"] = statistics.step_time;
    gate["bound_ns"] = statistics.bound;
    gate["over_bound"] = statistics.over_bound;
    gate["predicted"] = statistics.predicted;
    gate["met"] = statistics.met;
    gate["idle_ns"] = statistics.idle_time;
    gate["idle_filled_ns"] = statistics.idle_filled;
    gate["idle_confined_ns"] = statistics.idle_confined;
    gate["trust"] = statistics.trust;
    gate["beside_ns"] = statistics.beside_time;
    gate["slowed_ns"] = statistics.slowed_time;
    gate["delays"] = statistics.delays.count;
    gate["delay_ns"] = statistics.delays.sum;
    gate["worst_delay_ns"] = statistics.delays.worst;
    gate["caused_beside_ns"] = statistics.beside_caused;
    gate["caused_slowed_ns"] = statistics.slowed_caused;
    gate["caused_delays"] = statistics.caused.count;
    gate["caused_delay_ns"] = statistics.caused.sum;
    gate["caused_worst_delay_ns"] = statistics.caused.worst;
    if (!session.delayed_by.empty()) gate["delayed_by"] = session.delayed_by;
    gate["measured"] = session.usage.measured;
    gate["measuring_ns"] = session.measuring_time;
    return gate;
}

nb::dict describe(const SessionSnapshot& session) {
    nb::dict usage;
    usage["gpu_ns"] = session.usage.gpu_ns;
    usage["launches"] = session.usage.launches;
    usage["operations"] = session.usage.operations;
    usage["bytes_copied"] = session.usage.bytes_copied;
    usage["gate_wait_ns"] = session.usage.gate_wait_ns;
    usage["gate_waits"] = session.usage.gate_waits;
    usage["memory_bytes"] = session.memory_bytes;
    usage["memory_peak_bytes"] = session.memory_peak;
    usage["queued"] = session.queued;
    nb::dict unsupported;
    for (const auto& [name, count] : session.unsupported) unsupported[name.c_str()] = count;
    usage["unsupported"] = unsupported;
    nb::dict all;
    all["session"] = session.id;
    all["priority"] = session.level;
    all["weight"] = session.weight;
    all["paused"] = session.paused;
    all["memory_limit_bytes"] = session.memory_limit;
    all["host_functions"] = session.host_functions;
    all["call_ns"] = session.call_ns;
    all["overdue_ns"] = session.overdue_ns;
    all["usage"] = usage;
    all["gate"] = describe_gate(session);
    return all;
}

nb::tuple shape(const uint32_t (&extent)[3]) { return nb::make_tuple(extent[0], extent[1], extent[2]); }

const char* operation_name(const TraceRecord& record) {
    if (record.op == FIKIT_OP_COPY) {
        static constexpr const char* kinds[] = {"copy to device", "copy to host", "copy on device"};
        return kinds[record.detail];
    }
    return record.op == FIKIT_OP_FILL ? "fill" : record.op == FIKIT_OP_GRAPH ? "graph" : "launch";
}

std::string hexadecimal(uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

}  // namespace

NB_MODULE(_core, module) {
    module.attr("ABI_VERSION") = FIKIT_ABI_VERSION;
    module.attr("MAX_SESSIONS") = scheduling::max_sessions;

    nb::class_<scheduling::Bounds>(module, "Bounds")
        .def(nb::init<>())
        .def_rw("in_flight", &scheduling::Bounds::in_flight)
        .def_rw("partition_block", &scheduling::Bounds::partition_block)
        .def_rw("high_memory", &scheduling::Bounds::high_memory)
        .def_rw("starvation_share", &scheduling::Bounds::starvation_share)
        .def_rw("delay_share", &scheduling::Bounds::delay_share)
        .def_rw("spared_share", &scheduling::Bounds::spared_share)
        .def_rw("delay_least", &scheduling::Bounds::delay_least);

    nb::class_<Settings>(module, "Settings")
        .def(nb::init<>())
        .def_rw("driver_path", &Settings::driver_path)
        .def_rw("policy", &Settings::policy)
        .def_rw("bounds", &Settings::bounds)
        .def_rw("time_scale", &Settings::time_scale)
        .def_rw("spin_host_ns", &Settings::spin_host_ns)
        .def_rw("poll_host_ns", &Settings::poll_host_ns)
        .def_rw("staging_bytes", &Settings::staging_bytes)
        .def_rw("host_limit_bytes", &Settings::host_limit_bytes)
        .def_rw("host_tenant_bytes", &Settings::host_tenant_bytes)
        .def_rw("host_ledger_path", &Settings::host_ledger_path)
        .def_rw("board_path", &Settings::board_path)
        .def_rw("ledger_path", &Settings::ledger_path)
        .def_rw("gpu", &Settings::gpu)
        .def_rw("printed", &Settings::printed);

    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Core>(module, "Core")
        .def(
            "__init__",
            [](Core* self, const Settings& settings, uintptr_t context) {
                new (self) Core(settings, reinterpret_cast<CUcontext>(context));
            },
            nb::arg("settings"), nb::arg("context"))
        .def(
            "add_lane",
            [](Core& self, uintptr_t stream, int cuda_priority, uint32_t multiprocessors) {
                self.add_lane(reinterpret_cast<CUstream>(stream), cuda_priority, multiprocessors);
            },
            nb::arg("stream"), nb::arg("cuda_priority"), nb::arg("multiprocessors"))
        .def(
            "set_monitor",
            [](Core& self, uintptr_t stream) { self.set_monitor(reinterpret_cast<CUstream>(stream)); },
            nb::arg("stream"))
        .def("start", &Core::start, Unlocked())
        .def("stop", &Core::stop, Unlocked())
        .def(
            "attach",
            [](Core& self, const std::string& session, int level, double weight, uint64_t memory_limit,
               uint64_t tenant_limit, bool unmodified, int lifeline, int process, const std::string& job) {
                return self.attach(
                    {session, level, weight, memory_limit, tenant_limit, unmodified, lifeline, process, job});
            },
            nb::arg("session"), nb::arg("level"), nb::arg("weight"), nb::arg("memory_limit"),
            nb::arg("tenant_limit"), nb::arg("unmodified"), nb::arg("lifeline"), nb::arg("process"),
            nb::arg("job"), Unlocked())
        .def("end", &Core::end, nb::arg("session"), nb::arg("error"), nb::arg("reason"), Unlocked())
        .def(
            "change",
            [](Core& self, const std::string& session, std::optional<int> level, std::optional<double> weight,
               std::optional<bool> paused, std::optional<bool> measured) {
                return self.change(session, {level, weight, paused, measured});
            },
            nb::arg("session"), nb::arg("level").none(), nb::arg("weight").none(), nb::arg("paused").none(),
            nb::arg("measured").none(), Unlocked())
        .def("snapshot",
             [](Core& self) {
                 Snapshot taken;
                 {
                     const nb::gil_scoped_release unlocked;
                     taken = self.snapshot();
                 }
                 nb::dict all;
                 nb::list sessions;
                 for (const SessionSnapshot& session : taken.sessions) sessions.append(describe(session));
                 all["sessions"] = sessions;
                 all["busy_ns"] = taken.busy_ns;
                 all["keeping"] = taken.keeping;
                 all["outlived"] = taken.outlived;
                 return all;
             })
        .def(
            "memory_left",
            [](const Core& self, uint64_t most, uint64_t used) {
                const MemoryLeft left = self.memory_left(most, used);
                require(self.driver(), left.result, "cuMemGetInfo");
                return std::make_pair(left.free, left.total);
            },
            nb::arg("most"), nb::arg("used"), Unlocked())
        .def("take_profiles",
             [](Core& self) {
                 std::vector<KernelMeasurement> taken;
                 {
                     const nb::gil_scoped_release unlocked;
                     taken = self.take_profiles();
                 }
                 nb::list all;
                 for (const KernelMeasurement& kernel : taken) {
                     nb::dict entry;
                     entry["module"] = hexadecimal(kernel.name.module_hash);
                     entry["function"] = text(kernel.name.function);
                     entry["grid"] = shape(kernel.shape.grid);
                     entry["block"] = shape(kernel.shape.block);
                     entry["shared_bytes"] = kernel.shape.shared_bytes;
                     entry["samples"] = kernel.samples;
                     entry["median_ns"] = kernel.median;
                     entry["p95_ns"] = kernel.p95;
                     entry["shortest_ns"] = kernel.shortest;
                     entry["block_ns"] = kernel.block;
                     entry["wrong"] = kernel.wrong;
                     entry["key"] = hexadecimal(kernel.key);
                     nb::list gaps;
                     for (const KernelGap& gap : kernel.gaps)
                         if (gap.samples > 0)
                             gaps.append(nb::make_tuple(hexadecimal(gap.before), gap.samples, gap.median));
                     entry["gaps"] = gaps;
                     all.append(entry);
                 }
                 return all;
             })
        .def(
            "load_profile",
            [](Core& self, const std::string& hash, const std::string& function,
               const std::vector<uint32_t>& grid, const std::vector<uint32_t>& block, uint32_t shared_bytes,
               uint32_t samples, uint32_t median_ns, uint32_t p95_ns, uint32_t shortest_ns, uint32_t wrong,
               const std::vector<std::tuple<std::string, uint32_t, uint32_t>>& gaps) {
                KernelMeasurement known;
                known.name = {std::stoull(hash, nullptr, 16), function};
                for (size_t axis = 0; axis < 3; ++axis) {
                    known.shape.grid[axis] = grid.at(axis);
                    known.shape.block[axis] = block.at(axis);
                }
                known.shape.shared_bytes = shared_bytes;
                known.samples = samples;
                known.median = median_ns;
                known.p95 = p95_ns;
                known.shortest = shortest_ns;
                known.wrong = wrong;
                for (size_t i = 0; i < std::min(gaps.size(), known.gaps.size()); ++i) {
                    const auto& [before, count, median] = gaps[i];
                    known.gaps[i] = {std::stoull(before, nullptr, 16), count, median, {}};
                    known.gaps[i].times.fill(median);
                }
                self.load_profiles({known});
            },
            nb::arg("module"), nb::arg("function"), nb::arg("grid"), nb::arg("block"),
            nb::arg("shared_bytes"), nb::arg("samples"), nb::arg("median_ns"), nb::arg("p95_ns"),
            nb::arg("shortest_ns"), nb::arg("wrong"), nb::arg("gaps"), Unlocked())
        .def("forget_profiles", &Core::forget_profiles, Unlocked())
        .def("bound_printed", &Core::bound_printed, Unlocked())
        .def("set_trace", &Core::set_trace, nb::arg("on"), Unlocked())
        .def(
            "read_trace",
            [](Core& self, uint64_t cursor, size_t limit) {
                uint64_t dropped = 0;
                std::vector<NamedTrace> taken;
                {
                    const nb::gil_scoped_release unlocked;
                    taken = self.read_trace(cursor, limit, dropped);
                }
                nb::list all;
                for (const NamedTrace& entry : taken) {
                    const TraceRecord& record = entry.record;
                    all.append(nb::make_tuple(entry.session, record.stream, operation_name(record),
                                              text(entry.name), record.arrived, record.issued, record.started,
                                              record.ended, record.bytes, record.blocks,
                                              record.multiprocessors));
                }
                return nb::make_tuple(all, cursor, dropped);
            },
            nb::arg("cursor"), nb::arg("limit"))
        .def("take_ended",
             [](Core& self) {
                 nb::list all;
                 for (const EndedSession& ended : self.take_ended()) {
                     nb::dict entry;
                     entry["session"] = ended.id;
                     entry["error"] = ended.error;
                     entry["reason"] = text(ended.reason);
                     entry["usage"] = describe(ended.last)["usage"];
                     entry["gate"] = describe_gate(ended.last);
                     all.append(entry);
                 }
                 return all;
             })
        .def_prop_ro("timer_overhead",
                     [](const Core& self) {
                         return nb::make_tuple(self.timer_overhead()[0], self.timer_overhead()[1]);
                     })
        .def_prop_ro("launch_cost", &Core::launch_cost)
        .def_prop_ro("notification", &Core::notification)
        .def_prop_ro("failure", &Core::failure)
        .def_prop_ro("failure_text", [](Core& self) { return text(self.failure_text()); });
}
