#include "holdings.hpp"

namespace fikit::shim {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Held* newest = nullptr;  // of all contexts'

}  // namespace

void Held::keep_for(const Context* context, void* object) {
    if (context == nullptr) return;
    object_ = object;
    const Locked lock(mutex);
    context_ = context;
    next_ = newest;
    if (newest != nullptr) newest->before_ = this;
    newest = this;
}

void Held::take_off() {
    (before_ != nullptr ? before_->next_ : newest) = next_;
    if (next_ != nullptr) next_->before_ = before_;
    before_ = next_ = nullptr;
    context_ = nullptr;
}

bool Held::let_go() {
    const Locked lock(mutex);
    if (context_ == nullptr) return false;
    take_off();
    return true;
}

void end_all_of(const Context& context) {
    for (;;) {
        Held* own = nullptr;
        {
            const Locked lock(mutex);
            for (own = newest; own != nullptr && own->context_ != &context;) own = own->next_;
            if (own == nullptr) return;
            own->take_off();
        }
        own->end_(own->object_);
    }
}

}  // namespace fikit::shim
