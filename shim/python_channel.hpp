// The channel as Python holds it, and the calls that need no class of their own.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "producer.hpp"
#include "python_waits.hpp"

namespace fikit::python {

namespace nb = nanobind;

class Channel {
  public:
    Channel(int outbox, int inbox, int lifeline) {
        Producer* producer = nullptr;
        const Status status = Producer::attach(outbox, inbox, lifeline, producer);
        if (status == status::driver_mismatch)
            throw std::runtime_error(
                "the daemon is of another release: its executors' channel has not version " +
                std::to_string(FIKIT_ABI_VERSION));
        if (status != status::success)
            throw std::runtime_error("the channel cannot be used: error " + std::to_string(status));
        producer->channel().set_interrupted(&python_interrupted);
        // Its threads may be waiting for the GIL; and this may be one that runs on while the interpreter
        // ends.
        producer_.reset(producer, [](Producer* last) {
            const Away counted;
            const nb::gil_scoped_release released;
            end(last);
        });
    }
    Producer* operator->() const { return producer_.get(); }
    const std::shared_ptr<Producer>& producer() const { return producer_; }

    std::pair<Status, nb::str> failure() const {
        return with_text([&](auto& text) { return producer_->channel().failed(&text); });
    }
    nb::str deferred_text() const {
        return with_text([&](auto& text) {
                   producer_->channel().deferred_text(text);
                   return status::success;
               })
            .second;
    }

  private:
    // A callback that had the last of the session may end it; its own thread cannot wait for itself.
    static void end(Producer* last) {
        if (!last->within_host_function()) {
            delete last;
            return;
        }
        last->end();
        try {
            std::thread([last, counted = std::make_shared<Away>()] { delete last; }).detach();
        } catch (const std::system_error&) {  // no thread is to be had: what is left stays
        }
    }
    template <class Get>
    static std::pair<Status, nb::str> with_text(const Get& get) {
        char text[FIKIT_ERROR_TEXT] = "";
        const Status status = get(text);
        PyObject* decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace");
        if (decoded == nullptr) throw nb::python_error();
        return {status, nb::steal<nb::str>(decoded)};
    }
    std::shared_ptr<Producer> producer_;
};

template <class Request, class Answer>
Status ask(const Channel& channel, uint32_t number, const Request& request, Answer& answer,
           const std::string& behind = {}) {
    Reply reply = {&answer, sizeof answer, 0};
    return waiting([&] {
        return channel->channel().call(number, {&request, sizeof request},
                                       {behind.data(), static_cast<uint32_t>(behind.size())}, reply);
    });
}

using ChannelClass = nb::class_<Channel>;

void bind_modules(ChannelClass& channel);

}  // namespace fikit::python
