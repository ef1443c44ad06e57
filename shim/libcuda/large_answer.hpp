// An answer that is more than the stack of a program's thread may hold.
#pragma once

#include <new>

#include "../channel.hpp"

namespace fikit::shim {

template <class Answer>
class LargeAnswer {
  public:
    LargeAnswer() = default;
    LargeAnswer(const LargeAnswer&) = delete;
    LargeAnswer& operator=(const LargeAnswer&) = delete;
    ~LargeAnswer() { delete answer_; }

    explicit operator bool() const { return answer_ != nullptr; }  // else there is no memory
    Answer* operator->() const { return answer_; }
    Answer& operator*() const { return *answer_; }
    Reply reply() const { return {answer_, sizeof(Answer), 0}; }

  private:
    Answer* const answer_ = new (std::nothrow) Answer;
};

}  // namespace fikit::shim
