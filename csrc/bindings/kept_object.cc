#include "bindings/kept_object.h"

#include <mutex>
#include <utility>
#include <vector>

namespace pyc {
namespace {

/// References that Python has not dropped yet.
class Dropped {
 public:
  static Dropped& instance() {
    static auto* const dropped = new Dropped;  // never destroyed: threads of the engine may outlive static objects
    return *dropped;
  }

  void add(PyObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
    if (!asked_) asked_ = Py_AddPendingCall(&Dropped::drop_all, this) == 0;  // full: the next object asks again
  }

 private:
  static int drop_all(void* self) {
    auto& own = *static_cast<Dropped*>(self);
    std::vector<PyObject*> objects;
    {
      const std::lock_guard lock(own.mutex_);
      objects.swap(own.objects_);
      own.asked_ = false;
    }
    for (PyObject* const object : objects) Py_DECREF(object);
    return 0;
  }

  std::mutex mutex_;
  std::vector<PyObject*> objects_;
  bool asked_ = false;
};

}  // namespace

std::shared_ptr<py::object> kept(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            Dropped::instance().add(held->release().ptr());
            delete held;
          }};
}

}  // namespace pyc
