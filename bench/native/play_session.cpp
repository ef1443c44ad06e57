// Operations in a session of fikit, by the producer that every client is a layer over.
#include <cstring>

#include "play.hpp"
#include "producer.hpp"

namespace fikit::bench {
namespace {

void check(const char* what, Status result) {
    if (result != status::success) give_up(what, result);
}

class InSession final : public Gpu {
  public:
    InSession(int outbox, int inbox, int lifeline) {
        Producer* producer = nullptr;
        check("attach", Producer::attach(outbox, inbox, lifeline, producer));
        producer_.reset(producer);
        check("stream_create", producer_->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream_));
    }

    void load(const std::string& image) override {
        Reply log;
        check("module_load", producer_->module_load(image.c_str(), image.size() + 1, module_, log));
    }
    uint32_t function(const std::string& name, int shared_bytes) override {
        uint32_t number = 0;
        Reply found, set;
        check("function_get", producer_->function_get(module_, name.data(),
                                                      static_cast<uint32_t>(name.size()), number, found));
        constexpr int max_dynamic_shared = 8;  // CUfunction_attribute
        const fikit_request_function_set_attribute request{number, max_dynamic_shared, shared_bytes, 0};
        check("function_set_attribute",
              producer_->call(fikit_call_function_set_attribute, {&request, sizeof request}, set));
        return number;
    }
    uint64_t allocate(uint64_t bytes) override {
        uint64_t address = 0, charged = 0;
        check("memory_allocate", producer_->memory_allocate(bytes, address, charged));
        return address;
    }
    void* allocate_pinned(uint64_t bytes) override {
        uint32_t handle = 0;
        HostBuffer buffer{};
        check("host_allocate", producer_->host_allocate(bytes, handle, buffer));
        return buffer.address;
    }
    void enqueue(const Operation& what) override {
        switch (what.kind) {
            case Operation::Kind::launch:
                return launch(what);
            case Operation::Kind::fill:
                return check("fill", producer_->fill(stream_, what.to, what.bytes, 0, 1));
            case Operation::Kind::on_device:
                return check("copy_on_device",
                             producer_->copy_on_device(stream_, what.to, what.from, what.bytes));
            case Operation::Kind::to_device:
                return check("copy_to_device",
                             producer_->copy_to_device(stream_, what.to,
                                                       reinterpret_cast<const void*>(what.from), what.bytes));
            case Operation::Kind::to_host:
                return check("copy_to_host",
                             producer_->copy_to_host(stream_, reinterpret_cast<void*>(what.to), what.from,
                                                     what.bytes));
        }
    }
    void synchronize() override { check("synchronize", producer_->stream_synchronize(stream_)); }

  private:
    void launch(const Operation& what) {
        LaunchShape shape{};
        shape.function = what.function;
        shape.stream = stream_;
        std::memcpy(shape.grid, what.grid, sizeof shape.grid);
        std::memcpy(shape.block, what.block, sizeof shape.block);
        shape.shared_bytes = what.shared_bytes;
        shape.parameter_bytes = static_cast<uint32_t>(what.parameters.size() * sizeof(uint64_t));
        check("launch", producer_->launch(shape, nullptr, what.parameters.data()));
    }

    std::unique_ptr<Producer> producer_;
    uint32_t stream_ = 0, module_ = 0;
};

}  // namespace

std::unique_ptr<Gpu> in_session(int outbox, int inbox, int lifeline) {
    return std::make_unique<InSession>(outbox, inbox, lifeline);
}

}  // namespace fikit::bench
