#include "play.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace fikit::bench {
namespace {

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) give_up("reading " + path, -1);
    return {std::istreambuf_iterator<char>(file), {}};
}

Operation::Kind copy_kind(const std::string& way) {
    if (way == "to_device") return Operation::Kind::to_device;
    if (way == "to_host") return Operation::Kind::to_host;
    return Operation::Kind::on_device;
}

}  // namespace

void give_up(const std::string& what, int status) {
    std::fprintf(stderr, "bench: %s failed (%d)\n", what.c_str(), status);
    std::exit(1);
}

Player::Player(const std::string& plan, double scale, std::unique_ptr<Gpu> gpu)
    : scale_(scale), gpu_(std::move(gpu)) {
    read(plan);
}

void Player::read(const std::string& plan) {
    std::istringstream lines(content(plan));
    uint64_t largest = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string kind, text;
        double at = 0;
        uint32_t number = 0, other = 0;
        Operation operation;
        words >> kind;
        if (kind == "image") {
            words >> text;
            gpu_->load(content(text));
            continue;
        }
        if (kind == "function") {
            words >> text >> number;
            functions_.push_back(gpu_->function(text, static_cast<int>(number)));
            continue;
        }
        if (kind == "buffer") {
            words >> operation.bytes;
            buffers_.push_back(gpu_->allocate(operation.bytes));
            largest = std::max(largest, operation.bytes);
            operation.kind = Operation::Kind::fill;
            operation.to = buffers_.back();
            gpu_->enqueue(operation);
            continue;
        }
        words >> at;
        if (kind == "pause") {
            pause_ns_ = scaled(at);
            continue;
        }
        operation.at_ns = scaled(at);
        if (kind == "launch") {
            words >> number;
            operation.function = functions_.at(number);
            for (uint32_t& axis : operation.grid) words >> axis;
            for (uint32_t& axis : operation.block) words >> axis;
            words >> operation.shared_bytes;
            while (words >> text)
                operation.parameters.push_back(text[0] == '@' ? buffers_.at(std::stoul(text.substr(1)))
                                                              : std::stoull(text));
        } else if (kind == "fill") {
            operation.kind = Operation::Kind::fill;
            words >> number >> operation.bytes;
            operation.to = buffers_.at(number);
        } else if (kind == "copy") {
            words >> text >> number >> other >> operation.bytes;
            operation.kind = copy_kind(text);
            operation.to = buffers_.at(number);
            operation.from = buffers_.at(other);
            if (operation.kind != Operation::Kind::on_device) {
                if (pinned_ == nullptr) pinned_ = gpu_->allocate_pinned(largest);
                (operation.kind == Operation::Kind::to_host ? operation.to : operation.from) =
                    reinterpret_cast<uint64_t>(pinned_);
            }
        } else {
            give_up("the line '" + line + "' of " + plan, -1);
        }
        operations_.push_back(std::move(operation));
    }
    gpu_->synchronize();
}

// A host that computes is busy, so this one is; where device time is stretched, it sleeps instead and leaves
// the processor to whoever models the device.
void Player::wait_until(int64_t host_ns) const {
    if (scale_ > 1) {
        const timespec until{host_ns / 1'000'000'000, host_ns % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    } else {
        while (now_ns() < host_ns) {
        }
    }
}

void Player::step() {
    const int64_t begin = now_ns();
    for (const Operation& operation : operations_) {
        if (now_ns() < begin + operation.at_ns) wait_until(begin + operation.at_ns);
        gpu_->enqueue(operation);
    }
    gpu_->synchronize();
}

std::vector<Step> Player::play(const std::atomic<bool>& stop) {
    std::vector<Step> steps;
    steps.reserve(1 << 16);
    while (!stop.load(std::memory_order_relaxed)) {
        const int64_t begin = now_ns();
        step();
        const int64_t end = now_ns();
        steps.push_back({begin, end});
        if (pause_ns_ > 0) wait_until(end + pause_ns_);
    }
    return steps;
}

}  // namespace fikit::bench
