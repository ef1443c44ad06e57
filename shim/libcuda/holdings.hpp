// What goes with the context that it was made in, as natively: streams, events, modules, arrays, textures.
#pragma once

#include "process.hpp"

namespace fikit::shim {

// A part of such an object, to be let go of before that is deleted. Not by a destructor: some streams are
// static or a thread's, and destructors of those run in forked children too and ask for a newer C library.
class Held {
  public:
    // `end` destroys the object, as far as it can be. nullptr: it is no context's.
    template <auto end, class Object>
    void keep(const Context* context, Object& object) {
        end_ = [](void* own) { end(*static_cast<Object*>(own)); };
        keep_for(context, &object);
    }
    // False: it was let go of before.
    bool let_go();

  private:
    friend void end_all_of(const Context& context);
    void keep_for(const Context* context, void* object);
    void take_off();

    const Context* context_ = nullptr;
    void* object_ = nullptr;
    void (*end_)(void* object) = nullptr;
    Held *before_ = nullptr, *next_ = nullptr;
};

// Of a context that ends, the newest first: a texture before its array.
void end_all_of(const Context& context);

}  // namespace fikit::shim
