// A session of fikit, by the producer that every client is a layer over.
#include <iterator>
#include <string_view>

#include "producer.hpp"
#include "target.hpp"

namespace fikit::bench {
namespace {

void check(const char* what, Status result) {
    if (result != status::success) give_up(what, result);
}

class Through final : public Target {
  public:
    Through(int outbox, int inbox, int lifeline) {
        Producer* producer = nullptr;
        check("attach", Producer::attach(outbox, inbox, lifeline, producer));
        producer_.reset(producer);
        uint32_t module = 0;
        Reply log, reply;
        const std::string image = kernels();
        check("stream_create", producer_->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, shape_.stream));
        check("module_load", producer_->module_load(image.c_str(), image.size() + 1, module, log));
        for (const Kernel each : {empty, nanoseconds, cycles}) {
            const std::string_view name = kernel_names[each];
            check("function_get",
                  producer_->function_get(module, name.data(), static_cast<uint32_t>(name.size()),
                                          functions_[each], reply));
        }
    }

    void launch(Kernel kernel, uint64_t length) override {
        const uint64_t parameters[] = {length, 2};
        shape_.function = functions_[kernel];
        check("launch", producer_->launch(shape_, nullptr, parameters));
    }
    void synchronize() override { check("synchronize", producer_->stream_synchronize(shape_.stream)); }
    uint64_t allocate(uint64_t bytes) override {
        uint64_t address = 0, charged = 0;
        check("memory_allocate", producer_->memory_allocate(bytes, address, charged));
        return address;
    }
    void free(uint64_t address) override { check("memory_free", producer_->memory_free(address)); }
    void* allocate_pinned(uint64_t bytes) override {
        uint32_t handle = 0;
        HostBuffer buffer{};
        check("host_allocate", producer_->host_allocate(bytes, handle, buffer));
        return buffer.address;
    }
    void copy_to_device(uint64_t to, const void* from, uint64_t bytes, bool pinned) override {
        check("copy_to_device", producer_->copy_to_device(shape_.stream, to, from, bytes));
        if (!pinned) synchronize();
    }
    void copy_to_host(void* to, uint64_t from, uint64_t bytes, bool) override {
        check("copy_to_host", producer_->copy_to_host(shape_.stream, to, from, bytes));
    }

  private:
    std::unique_ptr<Producer> producer_;
    uint32_t functions_[std::size(kernel_names)] = {};
    LaunchShape shape_ = {.function = 0,
                          .stream = 0,
                          .grid = {1, 1, 1},
                          .block = {32, 1, 1},
                          .shared_bytes = 0,
                          .parameter_bytes = 16,
                          .attributes = 0};
};

}  // namespace

std::unique_ptr<Target> through(int outbox, int inbox, int lifeline) {
    return std::make_unique<Through>(outbox, inbox, lifeline);
}

}  // namespace fikit::bench
