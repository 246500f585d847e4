#include "services/neighbor_averaging/neighborhood.h"

#include <algorithm>
#include <utility>

#include "core/at_end.h"
#include "core/error.h"

namespace pyc {
namespace {

/// The largest number of in-neighbors on other nodes in a step.
template <class IsLocal>
std::size_t most_on_other_nodes(const NeighborhoodOptions& options, IsLocal is_local) {
  std::ptrdiff_t most = 0;
  for (const NeighborhoodStep& step : options.steps) {
    most = std::max(
        most, std::count_if(step.in.begin(), step.in.end(), [&](const Neighbor& n) { return !is_local(n.rank); }));
  }
  return static_cast<std::size_t>(most);
}

Awaited step_of(Rank rank, std::uint64_t step) { return {rank, "step # of @", step, step}; }

}  // namespace

std::shared_ptr<Neighborhood> Neighborhood::create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                   const Nodes& nodes, Seconds timeout,
                                                   const Engine::Interrupt& interrupt) {
  std::shared_ptr<Neighborhood> made(new Neighborhood(*engine, memory, std::move(options), nodes));
  Neighborhood& m = *made;
  const std::size_t of_rank = NeighborhoodBoard::bytes(m.options_.published_bytes(), m.options_.buffers());
  const OnNode on_node{.bytes = nodes.neighbours(m.rank()).size() * of_rank,
                       .make = [&m](std::shared_ptr<std::byte> shared) { m.make(std::move(shared)); }};
  return created(std::move(engine), std::move(made), on_node, timeout, interrupt);
}

Neighborhood::Neighborhood(Engine& engine, Memory& memory, Options options, const Nodes& nodes)
    : Service(engine, nodes, options.push_sum() ? "push-sum" : "neighbor averaging", options.name),
      memory_(memory),
      options_(std::move(options)),
      neighbors_(options_.neighbors()) {}

void Neighborhood::make(std::shared_ptr<std::byte> memory) {
  board_ = std::make_unique<NeighborhoodBoard>(std::move(memory), nodes_.local_rank_of(rank()),
                                               options_.published_bytes(), options_.buffers());
  const std::size_t most = most_on_other_nodes(options_, [this](Rank r) { return is_local(r); });
  model_ = std::make_unique<NeighborhoodModel>(memory_, options_);
  while (incoming_.size() < most) incoming_.push_back(memory_.allocate(options_.published_bytes()));
  add_memory((most + 1) * options_.published_bytes());  // incoming values and the model
}

void Neighborhood::open() {
  edges_ = std::make_unique<NeighborhoodEdges>(*engine_, id(), options_.published_bytes(), on_other_nodes(neighbors_));
}

// ------------------------------------------------------------------------------------------------ the application

void Neighborhood::start(const std::byte* values) {
  check_open();
  if (given_ != begun_) {
    throw std::runtime_error("'" + options_.name + "': start: step " + std::to_string(begun_ - 1) +
                             " has not been waited for: wait on `request` first");
  }
  model_->show(values, board_->own_values(begun_));  // has no readers: the previous step has ended
  engine_->exclusively([this] {
    check_open();  // another thread may have left
    begin_step();
  });
  engine_->advance();
  engine_->wake();
}

void Neighborhood::wait(std::byte* out, Seconds timeout, const Engine::Interrupt& interrupt) {
  check_open();
  if (given_ == begun_)
    throw std::runtime_error("'" + options_.name + "': wait: no step was started; call start first");
  read("step " + std::to_string(begun_ - 1), false, out, timeout, interrupt);
  given_ = begun_;
}

bool Neighborhood::test() {
  check_open();
  engine_->advance();
  check_alive();
  return given_ == begun_ || engine_->exclusively([this] { return can_read(false); });
}

void Neighborhood::final(std::byte* out, Seconds timeout, const Engine::Interrupt& interrupt) {
  if (!settled_) engine_->check();
  if (begun_ == 0) throw std::runtime_error("'" + options_.name + "': final: no step was started; call start first");
  read("the end of step " + std::to_string(begun_ - 1), true, out, timeout, interrupt);
}

void Neighborhood::read(const std::string& what, bool final, std::byte* out, Seconds timeout,
                        const Engine::Interrupt& interrupt) {
  std::vector<Term> added;
  const AtEnd has_read([this] {
    if (engine_->is_in_own_process()) engine_->exclusively([this] { is_reading_ = false; });
  });
  const auto begin = [&] {
    return engine_->exclusively([&] {
      if (is_reading_) return true;
      if (!can_read(final)) return false;
      if (final && !closed()) added = in_flight();
      return is_reading_ = true;
    });
  };
  const auto awaited = [&] { return is_averaging() || !final ? awaited_by_step() : awaited_by_final(); };
  wait_for({.what = what,
            .done = begin,
            .awaited = [&] { return engine_->exclusively(awaited); },
            .sleep = [&](Seconds limit) { return sleep(awaited, begin, limit); },
            .if_none_is_missing = "every neighbor has come: it is slow, wait again",
            .advice = " A rank that makes fewer steps must leave() it before another collective call, of MPI too.",
            .after_close = true},
           timeout, interrupt);
  weight_ = model_->write(added, out);
}

/// Sleeps if all awaited ranks are on this node, because only these notify.
bool Neighborhood::sleep(const std::function<std::vector<Awaited>()>& awaited, const std::function<bool()>& done,
                         Seconds limit) const {
  bool all_notify = false;
  engine_->exclusively_if_free([&] {
    const std::vector<Awaited> missing = awaited();
    all_notify = std::all_of(missing.begin(), missing.end(), [this](const Awaited& a) { return is_local(a.rank); });
  });
  return all_notify && sleep_until_notified(limit, done);
}

bool Neighborhood::can_read(bool final) const {
  if (is_averaging()) return false;
  if (closed()) return settled_;
  return !final || awaited_by_final().empty();
}

void Neighborhood::tell_closed() {
  board_->leave(begun_);
  for (const Rank r : neighbors_) notify(r);
  edges_->tell_left(begun_);
}

// ------------------------------------------------------------------------------------------------ a step

/// The step whose inputs the newest step adds.
std::optional<std::uint64_t> Neighborhood::step_of_input() const {
  const std::uint64_t step = begun_ - 1;
  if (step < options_.overlap) return std::nullopt;
  return step - options_.overlap;
}

/// The step whose buffer the next step overwrites. The newest step waits for its readers.
std::optional<std::uint64_t> Neighborhood::step_of_return() const {
  if (begun_ < options_.buffers()) return std::nullopt;
  return begun_ - options_.buffers();
}

void Neighborhood::begin_step() {
  note_call();
  const std::uint64_t step = begun_;
  begun_ = step + 1;
  board_->begin(begun_);
  notify_all(options_.at(step).out);
  if (options_.overlap == 0) take(step);
}

void Neighborhood::take(std::uint64_t step) {
  std::size_t slot = 0;
  for (const Neighbor& n : options_.at(step).in) {
    if (!is_local(n.rank)) edges_->take(n.rank, step, incoming_[slot++].get());
  }
}

void Neighborhood::notify_all(const std::vector<Neighbor>& neighbors) const {
  for (const Neighbor& n : neighbors) notify(n.rank);
}

bool Neighborhood::advance() {
  const bool moved = !edges_->empty() && edges_->give(begun_, closed() ? begun_.load() : NeighborhoodBoard::kNever,
                                                      [this](std::uint64_t step) { return board_->own_values(step); });
  if (is_averaging()) {
    if (terms_.empty()) {
      if (!awaited_by_step().empty()) return moved;
      terms_ = terms_of_step();
    }
    if (model_->average(terms_)) end_step();
    return true;
  }
  if (!closed() || settled_ || is_reading_) return moved;
  if (terms_.empty()) {
    if (!awaited_by_final().empty()) return moved;
    terms_ = in_flight();
  }
  if (terms_.empty() || model_->add(terms_)) settle();
  return true;
}

/// Called after `close`, when nothing more arrives for this rank.
void Neighborhood::settle() {
  terms_.clear();
  board_->has_read(NeighborhoodBoard::kNever);
  for (const Rank r : neighbors_) notify(r);
  edges_->tell_done();
  settled_ = true;
}

void Neighborhood::end_step() {
  terms_.clear();
  if (const auto input = step_of_input()) {
    board_->has_read(*input + 1);
    notify_all(options_.at(*input).in);
  }
  if (options_.overlap > 0) take(begun_ - 1);  // overwrites the previous step's inputs
  averaged_.store(begun_, std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------ the neighbors

Input Neighborhood::input(Rank from, std::uint64_t step) const {
  if (!is_local(from)) return edges_->input(from);
  const std::size_t local = nodes_.local_rank_of(from);
  if (board_->begun(local) > step) return Input::kPresent;
  return board_->has_left(local, step) ? Input::kAbsent : Input::kAwaited;
}

const std::byte* Neighborhood::values_of(const std::vector<Neighbor>& in, std::size_t which, std::uint64_t step) const {
  if (is_local(in[which].rank)) return board_->values(nodes_.local_rank_of(in[which].rank), step);
  const auto slot = std::count_if(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(which),
                                  [this](const Neighbor& n) { return !is_local(n.rank); });
  return incoming_[static_cast<std::size_t>(slot)].get();
}

bool Neighborhood::has_read(Rank rank, std::uint64_t step) const {
  return is_local(rank) ? board_->read(nodes_.local_rank_of(rank)) > step : edges_->has_given(rank, step);
}

bool Neighborhood::has_begun(Rank rank, std::uint64_t step) const {
  return is_local(rank) ? board_->begun(nodes_.local_rank_of(rank)) > step : edges_->has_begun(rank, step);
}

bool Neighborhood::has_left(Rank rank, std::uint64_t step) const {
  return is_local(rank) ? board_->has_left(nodes_.local_rank_of(rank), step) : edges_->has_left(rank, step);
}

/// Adds the weights of ranks that take no part in the step to `absent`.
void Neighborhood::add_inputs(std::uint64_t step, std::vector<Term>& terms, double& absent) const {
  const std::vector<Neighbor>& in = options_.at(step).in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (input(in[i].rank, step) == Input::kPresent) {
      terms.push_back({values_of(in, i, step), in[i].weight});
    } else {
      absent += in[i].weight;
    }
  }
}

/// Adds the values that were meant for ranks that take no part in the step.
void Neighborhood::add_returns(std::uint64_t step, std::vector<Term>& terms) const {
  if (!options_.push_sum()) return;
  for (const Neighbor& n : options_.at(step).out) {
    if (has_left(n.rank, step)) terms.push_back({board_->own_values(step), n.weight});
  }
}

std::vector<Term> Neighborhood::terms_of_step() const {
  const std::uint64_t step = begun_ - 1;
  std::vector<Term> terms{{board_->own_values(step), options_.at(step).own_weight}};
  double absent = 0;
  if (const auto input_step = step_of_input()) add_inputs(*input_step, terms, absent);
  if (!options_.push_sum()) {
    terms.front().weight = terms.size() > 1 ? terms.front().weight + absent : 1;  // exact if no neighbor takes part
  }
  if (const auto returned = step_of_return()) add_returns(*returned, terms);
  return terms;
}

/// The first step whose values for ranks that have left are not added back yet.
std::uint64_t Neighborhood::first_not_returned() const {
  const std::optional<std::uint64_t> returned = step_of_return();
  return returned ? *returned + 1 : 0;
}

/// The values that reach this rank's sum without another step.
std::vector<Term> Neighborhood::in_flight() const {
  std::vector<Term> terms;
  if (!options_.push_sum() || begun_ == 0) return terms;
  double absent = 0;
  if (options_.overlap > 0) add_inputs(begun_ - 1, terms, absent);
  for (std::uint64_t step = first_not_returned(); step < begun_; ++step) {
    add_returns(step, terms);
  }
  return terms;
}

// ------------------------------------------------------------------------------------------------ awaited ranks

std::vector<Awaited> Neighborhood::awaited_by_step() const {
  std::vector<Awaited> awaited;
  if (const auto step = step_of_input()) {
    for (const Neighbor& n : options_.at(*step).in) {
      if (input(n.rank, *step) == Input::kAwaited) awaited.push_back(step_of(n.rank, *step));
    }
  }
  if (const auto step = step_of_return()) {
    for (const Neighbor& n : options_.at(*step).out) {
      if (has_read(n.rank, *step)) continue;
      awaited.push_back(step_of(n.rank, *step + (is_local(n.rank) ? options_.overlap : 0)));  // the step that reads it
    }
  }
  return awaited;
}

std::vector<Awaited> Neighborhood::awaited_by_final() const {
  std::vector<Awaited> awaited;
  if (!options_.push_sum() || begun_ == 0) return awaited;
  if (options_.overlap > 0) {
    for (const Neighbor& n : options_.at(begun_ - 1).in) {
      if (input(n.rank, begun_ - 1) == Input::kAwaited) awaited.push_back(step_of(n.rank, begun_ - 1));
    }
  }
  for (std::uint64_t step = first_not_returned(); step < begun_; ++step) {
    for (const Neighbor& n : options_.at(step).out) {
      if (!has_begun(n.rank, step) && !has_left(n.rank, step)) awaited.push_back(step_of(n.rank, step));
    }
  }
  return awaited;
}

bool Neighborhood::busy() const {
  if (edges_->empty() || !is_averaging()) return false;
  const std::vector<Awaited> missing = awaited_by_step();
  return std::any_of(missing.begin(), missing.end(), [this](const Awaited& a) { return !is_local(a.rank); });
}

/// Whether a neighbor on another node has not received this rank's values yet.
bool Neighborhood::is_asked() const {
  if (edges_->empty()) return false;
  for (std::uint64_t step = first_not_returned(); step < begun_; ++step) {
    for (const Neighbor& n : options_.at(step).out) {
      if (!is_local(n.rank) && !edges_->has_given(n.rank, step)) return true;
    }
  }
  return false;
}

std::vector<Rank> Neighborhood::not_closed() const {
  std::vector<Rank> ranks;
  if (!closed()) ranks.push_back(rank());
  for (const Rank r : neighbors_) {
    if (!has_left(r, NeighborhoodBoard::kNever - 1)) ranks.push_back(r);
  }
  return ranks;
}

// ------------------------------------------------------------------------------------------------ messages

std::optional<Report> Neighborhood::progress(std::uint64_t step) const {
  if (averaged_ > step) return Report{RankState::kArrived};
  if (begun_ > step || has_waiting(rank())) {
    const std::vector<Awaited> awaited = awaited_by_step();
    if (!awaited.empty()) return Report{RankState::kWaits, static_cast<std::uint32_t>(awaited.front().rank)};
  }
  if (begun_ > step) return Report{RankState::kArrived};
  return std::nullopt;
}

void Neighborhood::receive(Rank from, ConstBytes bytes) {
  const auto handlers = Handlers{
      [this](Rank by, const neighborhood::Ask& ask) { edges_->asked(by, ask.step); },
      [this](Rank by, const neighborhood::Left& left) { edges_->left(by, left.steps); },
      [this](Rank by, const neighborhood::Done&) { edges_->done(by); },
  };
  neighborhood::Messages::deliver(from, bytes, handlers);
}

}  // namespace pyc
