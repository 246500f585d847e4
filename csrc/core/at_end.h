// What is done at the end of a scope, also after an exception.
#pragma once

namespace pyc {

template <class Action>
class AtEnd {
 public:
  explicit AtEnd(Action action) : action_(action) {}
  ~AtEnd() { action_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const Action action_;
};

}  // namespace pyc
