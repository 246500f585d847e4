#include "bindings/rounds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c_api.h"
#include "core/hot.h"

namespace pyc {
namespace {

/// One contribution and its collective.
struct Round {
  py::object owner;
  BoundPartialAllreduce* collective;  // in `owner`
  std::shared_ptr<Call> call;
};

/// The content of a Python RoundInfo.
struct ToldRound {
  /// Known to collectives that continue after deaths.
  struct Members {
    std::uint64_t epoch = 0;  // changes of the communicator's members before the round
    std::vector<Rank> lost;   // ranks that died since this rank's last call
  };

  const Members& told_members() const {
    static const Members none;
    return members ? *members : none;
  }

  RoundInfo info;
  std::unique_ptr<const Members> members;  // null before the first death: a call copies little
};

PyObject* late(PyObject* self, void*) {
  return guarded([&] {
    Round& round = Objects<Round>::content(self);
    return PyBool_FromLong(round.collective->is_late(*round.call));
  });
}

PyObject* default_timeout(PyObject* self, void*) {
  const Seconds limit = Objects<Round>::content(self).collective->default_limit();
  if (limit < 0) Py_RETURN_NONE;
  return PyFloat_FromDouble(limit);
}

PYC_HOT PyObject* test(PyObject* self, PyObject*) {
  return guarded([&] {
    Round& round = Objects<Round>::content(self);
    return PyBool_FromLong(round.collective->test(*round.call));
  });
}

PYC_HOT PyObject* wait(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    Round& round = Objects<Round>::content(self);
    PyObject* timeout = Py_None;
    if (count > 0 || names != nullptr) {
      take_arguments("wait", {values, count, names}, std::array{Parameter{"timeout", &timeout, true}}, 0);
    }
    round.collective->wait(*round.call, round.collective->limit_from(timeout));
    return make_round_info(round.call->info);
  });
}

/// See PartialAllreduce::complete_recovered.
PyObject* completed_info(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    Round& round = Objects<Round>::content(self);
    if (!(**round.collective).complete_recovered(*round.call)) Py_RETURN_NONE;
    return make_round_info(round.call->info);
  });
}

PyObject* repr_of_round(PyObject* self) {
  return guarded([&] {
    const Round& round = Objects<Round>::content(self);
    const std::string text =
        "<Round " + std::to_string(round.call->round) + " of '" + (**round.collective).name() + "'>";
    return py::str(text).release().ptr();
  });
}

PyObject* contributors(const RoundInfo& info) { return py::tuple(py::cast(info.contributor_list())).release().ptr(); }

py::tuple tuple_of(const std::vector<Rank>& ranks) { return {py::cast(ranks)}; }

std::string text_of(const std::vector<Rank>& ranks) { return py::repr(tuple_of(ranks)).cast<std::string>(); }

PyObject* repr(PyObject* self) {
  return guarded([&] {
    const ToldRound& told = Objects<ToldRound>::content(self);
    const RoundInfo& info = told.info;
    const auto& [epoch, lost] = told.told_members();
    const auto ranks = py::reinterpret_steal<py::object>(contributors(info));
    const std::string text =
        "RoundInfo(round=" + std::to_string(info.round) + ", initiator=" + std::to_string(info.initiator) +
        ", included=" + (info.included ? "True" : "False") + ", contributors=" + py::repr(ranks).cast<std::string>() +
        ", active=" + std::to_string(info.active) + ", staleness=" + std::to_string(info.staleness) +
        ", missed=" + std::to_string(info.missed) + ", overrun=" + (info.overrun ? "True" : "False") +
        (epoch == 0 ? "" : ", epoch=" + std::to_string(epoch) + ", lost=" + text_of(lost)) + ")";
    return py::str(text).release().ptr();
  });
}

py::tuple fields(PyObject* self) {
  const ToldRound& told = Objects<ToldRound>::content(self);
  const RoundInfo& info = told.info;
  const auto& [epoch, lost] = told.told_members();
  return py::make_tuple(info.round, info.initiator, info.included, py::tuple(py::cast(info.contributor_list())),
                        info.active, info.staleness, info.missed, info.overrun, epoch, tuple_of(lost));
}

/// The inverse of `fields`.
py::object restored(RoundNumber round, Rank initiator, bool included, const std::vector<Rank>& contributors,
                    std::uint32_t active, std::uint64_t staleness, std::uint64_t missed, bool overrun,
                    std::uint64_t epoch, std::vector<Rank> lost) {
  RoundInfo info;
  info.round = round;
  info.initiator = initiator;
  info.included = included;
  info.contributor_count = static_cast<std::uint32_t>(contributors.size());
  std::vector<std::uint64_t> words;
  for (const Rank rank : contributors) {
    if (rank < 0) throw std::invalid_argument("RoundInfo: expected ranks >= 0, got " + std::to_string(rank));
    const auto word = static_cast<std::size_t>(rank) / 64;
    words.resize(std::max(words.size(), word + 1));
    words[word] |= std::uint64_t{1} << (rank % 64);
  }
  info.contributors.assign(words.data(), words.size());
  info.active = active;
  info.staleness = staleness;
  info.missed = missed;
  info.overrun = overrun;
  auto members = epoch == 0 && lost.empty() ? nullptr : std::make_unique<ToldRound::Members>(epoch, std::move(lost));
  return py::reinterpret_steal<py::object>(Objects<ToldRound>::make(info, std::move(members)));
}

/// For `pickle` and `copy`.
PyObject* reduce(PyObject* self, PyObject*) {
  return guarded([&] {
    const py::object restore = py::module_::import("pycollectives._core").attr("restored_round_info");
    return py::make_tuple(restore, fields(self)).release().ptr();
  });
}

PyObject* compare(PyObject* self, PyObject* other, int how) {
  if (Py_TYPE(self) != Py_TYPE(other) || (how != Py_EQ && how != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] {
    const bool equal = fields(self).equal(fields(other));
    return PyBool_FromLong(equal == (how == Py_EQ));
  });
}

Py_hash_t hash(PyObject* self) {
  try {
    return py::hash(fields(self));
  } catch (py::error_already_set& error) {
    error.restore();
    return -1;
  }
}

PyObject* to_python(bool value) { return PyBool_FromLong(value); }
PyObject* to_python(Rank value) { return PyLong_FromLong(value); }
PyObject* to_python(std::uint32_t value) { return PyLong_FromUnsignedLong(value); }
PyObject* to_python(std::uint64_t value) { return PyLong_FromUnsignedLongLong(value); }

template <auto Member>
PyObject* member(PyObject* self, void*) {
  return to_python(Objects<ToldRound>::content(self).info.*Member);
}

PyObject* contributors_of(PyObject* self, void*) {
  return guarded([&] { return contributors(Objects<ToldRound>::content(self).info); });
}

PyObject* epoch_of(PyObject* self, void*) { return to_python(Objects<ToldRound>::content(self).told_members().epoch); }

PyObject* lost_of(PyObject* self, void*) {
  return guarded([&] { return tuple_of(Objects<ToldRound>::content(self).told_members().lost).release().ptr(); });
}

PyGetSetDef info_members[] = {
    {"round", &member<&RoundInfo::round>, nullptr, "The number of the round, from 0.", nullptr},
    {"initiator", &member<&RoundInfo::initiator>, nullptr, "The lowest rank that started the round.", nullptr},
    {"included", &member<&RoundInfo::included>, nullptr, "Whether the data of this call is in the result.", nullptr},
    {"contributors", &contributors_of, nullptr,
     "The ranks whose data is in the result, ascending; the same on every rank.", nullptr},
    {"active", &member<&RoundInfo::active>, nullptr,
     "How many contributors have fresh data: their newest came by a call that arrived in this very round.", nullptr},
    {"staleness", &member<&RoundInfo::staleness>, nullptr,
     "Rounds completed between the handing over of this rank's data and the round that took it.", nullptr},
    {"missed", &member<&RoundInfo::missed>, nullptr, "Rounds completed since this rank last looked, this one apart.",
     nullptr},
    {"overrun", &member<&RoundInfo::overrun>, nullptr,
     "Whether more were missed than `history`. Under missed='sum' they are in the result all the same.", nullptr},
    {"epoch", &epoch_of, nullptr, "Changes of the communicator's members before the round.", nullptr},
    {"lost", &lost_of, nullptr, "The ranks that died since this rank's last call, ascending.", nullptr},
    {}};

PyMethodDef info_methods[] = {{"__reduce__", &reduce, METH_NOARGS, nullptr}, {}};

PyMethodDef round_methods[] = {
    {"test", &test, METH_NOARGS,
     "test($self, /)\n--\n\nWhether the round is done; if so, `result` is up to date. Moves messages, waits for "
     "nothing."},
    {"completed_info", &completed_info, METH_NOARGS,
     "completed_info($self, /)\n--\n\nThe RoundInfo, if the round completed before the death that ended its "
     "collective."},
    {"wait", as_method(&wait), METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, *, timeout=None)\n--\n\n"
     "Waits until the round is done. StallError after `timeout` seconds names who has not arrived."},
    {}};

PyObject* done(PyObject* self, void*) { return test(self, nullptr); }

PyGetSetDef round_members[] = {
    {"done", &done, nullptr, "As `test`.", nullptr},
    {"default_timeout", &default_timeout, nullptr,
     "Seconds that `wait` takes at most if it is given no limit; None: there is none.", nullptr},
    {"late", &late, nullptr,
     "Whether rounds had completed that this rank had not been given: the call waits for nothing then. Of an array on "
     "a device this waits until its stream has made the values.",
     nullptr},
    {}};

char round_doc[] = "The request of one contribution.";
char info_doc[] = "What a call is told of the round that it was given.";

}  // namespace

PYC_HOT PyObject* make_round(PyObject* owner, BoundPartialAllreduce& collective, std::shared_ptr<Call> call) {
  return Objects<Round>::make(py::reinterpret_borrow<py::object>(owner), &collective, std::move(call));
}

PYC_HOT PyObject* make_round_info(const RoundInfo& info) { return Objects<ToldRound>::make(info, nullptr); }

void bind_rounds(py::module_& m) {
  m.attr("RoundInfo") = Objects<ToldRound>::define("pycollectives._core.RoundInfo",
                                                   {{Py_tp_doc, info_doc},
                                                    {Py_tp_getset, info_members},
                                                    {Py_tp_methods, info_methods},
                                                    {Py_tp_richcompare, reinterpret_cast<void*>(&compare)},
                                                    {Py_tp_hash, reinterpret_cast<void*>(&hash)},
                                                    {Py_tp_repr, reinterpret_cast<void*>(&repr)},
                                                    {0, nullptr}});
  Definitions(m).function<&restored>(
      "restored_round_info",
      "round, initiator, included, contributors, active, staleness, missed, overrun, epoch, lost");
  m.attr("Round") =
      Objects<Round>::define("pycollectives._core.Round", {{Py_tp_doc, round_doc},
                                                           {Py_tp_methods, round_methods},
                                                           {Py_tp_getset, round_members},
                                                           {Py_tp_repr, reinterpret_cast<void*>(&repr_of_round)},
                                                           {0, nullptr}});
}

}  // namespace pyc
