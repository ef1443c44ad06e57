// Replays recorded workloads; bench/replay.py writes its input and reads its output.
//
// Standard input, one item a line, times in nanoseconds:
//   program NAME OPERATIONS PAUSE [OPERATIONS PAUSE ...]   its iterations, then so many lines
//   UNIT KEY STREAM AT DURATION BLOCKS THREADS REGISTERS SHARED WHOLE PRESSURE SENSITIVITY JOINED
//   run HIGH LOW POLICY SECONDS WARMUP SEED IN_FLIGHT LONG_BLOCK LONG_PARTITION ALL_PARTITION SHARE LEAST
//   SIZES PACE SPARED TOLD_EVERY POLLED
// HIGH, LOW and SIZES (of partitions) are lists parted by commas, or "-". Each run answers with one line of
// JSON, in their order; as many as there are processors run at a time.
#include <sys/prctl.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <future>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "replay_gate.hpp"
#include "replay_threads.hpp"

namespace fikit::replay {
namespace {

namespace model = sim::model;

// The shape of a kernel that does nothing but last: as many blocks, and on an SM as many of them at a time as
// of the recorded kernel, held back by shared memory; each as long as makes the whole last as recorded.
Shape timed(uint64_t blocks, unsigned threads, unsigned registers, unsigned shared, Nanoseconds duration) {
    const unsigned whole_warps = (threads + model::warp_size - 1) / model::warp_size * model::warp_size;
    const unsigned each = std::max(model::warp_size, std::min(model::threads_per_block, whole_warps));
    const unsigned resident =
        std::max(1u, std::min({model::blocks_per_sm, model::threads_per_sm / each,
                               model::registers_per_sm / (std::max(16u, registers) * each),
                               model::shared_per_sm / (shared + model::shared_reserved_per_block)}));
    unsigned held = 0;
    if (resident < 16)
        held = std::min(model::shared_per_block_optin, model::shared_per_sm / resident - 1536) /
               model::shared_allocation_unit * model::shared_allocation_unit;
    Shape shape;
    shape.unit = Shape::Unit::multiprocessors;
    shape.blocks = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
    const sim::BlockShape block = sim::block_shape(each, 16, held);
    shape.block = Resources(block);
    shape.per_sm = static_cast<uint16_t>(sim::blocks_per_sm(block));
    const auto waves =
        static_cast<Nanoseconds>(std::ceil(static_cast<double>(blocks) / (model::sm_count * resident)));
    constexpr Nanoseconds around = 1000, shortest = 200;
    shape.duration = std::max(shortest, (duration - around) / waves) + model::block_overhead;
    return shape;
}

Operation read_operation(std::istream& line) {
    static const std::map<std::string, Shape::Unit> units = {{"kernel", Shape::Unit::multiprocessors},
                                                             {"to_device", Shape::Unit::to_device},
                                                             {"to_host", Shape::Unit::to_host},
                                                             {"on_device", Shape::Unit::alone}};
    std::string unit;
    Operation operation;
    uint64_t blocks = 0;
    unsigned threads = 0, registers = 0, shared = 0;
    Interference interference{};
    if (!(line >> unit >> operation.key >> operation.stream >> operation.at >> operation.duration >> blocks >>
          threads >> registers >> shared >> operation.whole >> interference.pressure >>
          interference.sensitivity >> interference.crowding >> interference.confined >> operation.joined) ||
        units.count(unit) == 0)
        throw std::invalid_argument("an operation cannot be read");
    operation.shape.unit = units.at(unit);
    operation.shape.duration = operation.duration;
    if (operation.shape.unit == Shape::Unit::multiprocessors)
        operation.shape =
            timed(std::max<uint64_t>(blocks, 1), threads, registers, shared, operation.duration);
    operation.shape.interference = interference;
    return operation;
}

// A graph ends with its iteration, and is on one stream.
void check_graphs(const Program& program) {
    size_t begin = 0;
    for (const Iteration& iteration : program.iterations) {
        for (size_t at = begin; at < std::min(iteration.end, program.operations.size()); ++at)
            if (program.operations[at].joined &&
                (at + 1 >= iteration.end || at + 1 >= program.operations.size() ||
                 program.operations[at].stream != program.operations[at + 1].stream))
                throw std::invalid_argument(program.name + ": a graph has no end");
        begin = iteration.end;
    }
}

std::vector<std::string> parts(const std::string& list) {
    std::vector<std::string> all;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');)
        if (part != "-") all.push_back(part);
    return all;
}

class Output {
  public:
    Output& field(const char* name, double value) { return put(name, value); }
    template <class Value>
    Output& field(const char* name, const std::vector<Value>& values) {
        key(name) << '[';
        for (size_t at = 0; at < values.size(); ++at) text_ << (at == 0 ? "" : ",") << values[at];
        text_ << ']';
        return *this;
    }
    Output& field(const char* name, const Output& value) { return put(name, value.str()); }
    Output& field(const char* name, const std::vector<Output>& values) {
        key(name) << '[';
        for (size_t at = 0; at < values.size(); ++at) text_ << (at == 0 ? "" : ",") << values[at].str();
        text_ << ']';
        return *this;
    }
    std::string str() const { return '{' + text_.str() + '}'; }
    Output() { text_.precision(12); }
    Output(const Output& other) : text_(other.text_.str(), std::ios::ate) {}

  private:
    std::ostringstream& key(const char* name) {
        text_ << (text_.tellp() > 0 ? ",\"" : "\"") << name << "\":";
        return text_;
    }
    template <class Value>
    Output& put(const char* name, const Value& value) {
        key(name) << value;
        return *this;
    }
    std::ostringstream text_;
};

Output describe(const TenantResult& tenant) {
    const scheduling::SessionStatistics& of = tenant.statistics;
    const auto number = [](auto value) { return static_cast<double>(value); };
    Output out;
    out.field("iterations_ns", tenant.iterations).field("kinds", tenant.kinds);
    out.field("work", tenant.work);
    const Decisions& decided = tenant.decisions;
    out.field("whole", number(decided.whole)).field("confined", number(decided.confined));
    out.field("waited", number(decided.waited));
    Output refused;
    for (unsigned reason = 0; reason < scheduling::refusals; ++reason)
        refused.field(scheduling::refusal_names[reason], number(of.refused[reason]));
    out.field("refused", refused);
    out.field("steps", number(of.steps)).field("bound_ns", number(of.bound));
    out.field("over_bound", number(of.over_bound)).field("delays", number(of.delays.count));
    out.field("delay_ns", number(of.delays.sum)).field("worst_delay_ns", number(of.delays.worst));
    out.field("predicted", number(of.predicted)).field("met", number(of.met)).field("blames", of.blames);
    return out;
}

std::string run(const Settings& settings, const std::vector<Program>& high, const std::vector<Program>& low) {
    Result result;
    if (settings.policy == "streams" || settings.policy == "fifo")
        Threads(high, low, settings).run(result);
    else
        Gate(high, low, settings).run(result);
    Output out;
    std::vector<Output> highs, lows;
    for (const TenantResult& tenant : result.high) highs.push_back(describe(tenant));
    for (const TenantResult& tenant : result.low) lows.push_back(describe(tenant));
    out.field("high", highs).field("low", lows).field("idle_ns", static_cast<double>(result.idle));
    out.field("filled_ns", static_cast<double>(result.filled));
    return out.str();
}

std::vector<Program> chosen(const std::map<std::string, Program>& programs, const std::string& names) {
    std::vector<Program> all;
    for (const std::string& name : parts(names)) all.push_back(programs.at(name));
    return all;
}

using Run = std::packaged_task<std::string()>;  // keeps what it throws, too

std::vector<Run> read(std::istream& input) {
    std::vector<Run> runs;
    std::map<std::string, Program> programs;
    for (std::string line; std::getline(input, line);) {
        std::istringstream words(line);
        std::string what, name, high, low, sizes;
        words >> what;
        if (what == "program") {
            size_t count = 0, more = 0;
            Nanoseconds pause = 0;
            Program program;
            words >> program.name;
            while (words >> more >> pause) program.iterations.push_back({count += more, pause});
            if (count == 0) throw std::invalid_argument("cannot read: " + line);
            for (; count > 0 && std::getline(input, line); --count) {
                std::istringstream operation(line);
                program.operations.push_back(read_operation(operation));
                program.streams = std::max(program.streams, program.operations.back().stream + 1);
            }
            check_graphs(program);
            programs[program.name] = std::move(program);
            continue;
        }
        Settings settings;
        double seconds = 0, warmup = 0, pace = 1;
        if (what != "run" ||
            !(words >> high >> low >> settings.policy >> seconds >> warmup >> settings.seed >>
              settings.in_flight >> settings.long_block >> settings.long_partition >>
              settings.all_partition >> settings.bounds.delay_share >> settings.bounds.delay_least >> sizes >>
              pace >> settings.spared >> settings.told_every >> settings.polled))
            throw std::invalid_argument("cannot read: " + line);
        settings.seconds = static_cast<Nanoseconds>(seconds * 1e9);
        settings.warmup = static_cast<Nanoseconds>(warmup * 1e9);
        settings.bounds.multiprocessors = model::sm_count;
        size_t at = 0;
        for (const std::string& size : parts(sizes))
            settings.bounds.partitions.at(at++) = static_cast<uint16_t>(std::stoul(size));
        if (settings.policy ==
            "exclusive") {  // one operation of the low side at a time, and none beside the high
            settings.policy = "strict";
            settings.bounds.in_flight = 0;
        } else if (settings.in_flight > 0) {
            settings.bounds.in_flight = settings.in_flight;
        }
        std::vector<Program> slower = chosen(programs, low);
        for (Program& program : slower)
            for (Operation& operation : program.operations)
                operation.shape.duration =
                    static_cast<Nanoseconds>(static_cast<double>(operation.shape.duration) * pace);
        runs.emplace_back([settings, above = chosen(programs, high), below = std::move(slower)] {
            return run(settings, above, below);
        });
    }
    return runs;
}

void run_all(std::vector<Run> runs) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
        for (size_t at = next++; at < runs.size(); at = next++) runs[at]();
    };
    std::vector<std::jthread> others;
    while (others.size() + 1 < std::min<size_t>(std::thread::hardware_concurrency(), runs.size()))
        others.emplace_back(work);
    work();
    others.clear();
    for (Run& run : runs) std::cout << run.get_future().get() << '\n';
}

}  // namespace
}  // namespace fikit::replay

int main() try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody else would end it, for hours, once who wants to know is gone
    std::ios::sync_with_stdio(false);
    fikit::replay::run_all(fikit::replay::read(std::cin));
    return 0;
} catch (const std::exception& error) {
    std::cerr << "replay: " << error.what() << '\n';
    return 1;
}
