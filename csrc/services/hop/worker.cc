#include "services/hop/worker.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace pyc {

HopWorker::HopWorker(const HopOptions& options, Memory& memory, Rank rank, std::byte* model, HopLinks& links)
    : options_(options),
      memory_(memory),
      rank_(rank),
      model_(model),
      links_(links),
      sum_(memory, options.elements()),
      newest_received_(options.in_of(rank).size(), 0) {}

// ------------------------------------------------------------------------------------------------ Fig. 7, lines 7-20

bool HopWorker::enter(Iteration last) {
  if (stage_ == Stage::kBefore) {  // iteration 0 takes no token, and the queues start with those it gives
    stage_ = options_.serial ? Stage::kComputing : Stage::kSending;
  }
  if (stage_ == Stage::kBetween) {
    ahead_ = length_of_step(last);
    stage_ = ahead_ > 1 ? Stage::kRenewing : Stage::kTaking;
  }
  if (stage_ == Stage::kRenewing) {  // an earlier call may have had a later `last`
    ahead_ = std::max<Iteration>(std::min(ahead_, last - iteration_), 1);
    if (ahead_ == 1) stage_ = Stage::kTaking;
  }
  if (stage_ == Stage::kRenewing) {  // section 5
    if (!receive(iteration_ + ahead_ - 1)) return false;
    reduce(nullptr);
    ++statistics_.jumps;
    statistics_.skipped += ahead_ - 1;
    stage_ = Stage::kTaking;
  }
  if (stage_ == Stage::kTaking) {
    if (!take_tokens()) return false;
    stage_ = options_.serial ? Stage::kComputing : Stage::kSending;
  }
  if (stage_ == Stage::kSending) {
    if (!send()) return false;
    stage_ = Stage::kComputing;
  }
  return true;
}

bool HopWorker::step(const std::byte* delta) {
  if (stage_ == Stage::kBetween) return true;
  if (stage_ == Stage::kComputing) {
    if (options_.serial) apply(delta);
    stage_ = options_.serial ? Stage::kSendingApplied : Stage::kReceiving;
  }
  if (stage_ == Stage::kSendingApplied) {
    if (!send()) return false;
    stage_ = Stage::kReceiving;
  }
  if (!receive(iteration_)) return false;
  reduce(options_.serial ? nullptr : delta);
  links_.acknowledge(iteration_ + 1);
  ++statistics_.iterations;
  stage_ = Stage::kBetween;
  return true;
}

// ------------------------------------------------------------------------------------------------ tokens

/// 1, or more if this rank is a straggler (section 5). The tokens of an out-neighbor show how far ahead it is.
Iteration HopWorker::length_of_step(Iteration last) const {
  if (!options_.skip) return 1;
  Iteration fewest = kNeverIteration;
  for (const Rank j : out()) {
    if (stays(j)) fewest = std::min(fewest, links_.tokens(j));
  }
  if (fewest == kNeverIteration || fewest <= options_.max_ig) return 1;
  const Iteration behind = fewest - options_.max_ig;
  if (behind <= options_.skip->trigger) return 1;
  const Iteration longest = std::min({behind, options_.skip->max_jump, last - iteration_});
  return std::max<Iteration>(std::min(longest, reached_by_senders() - iteration_), 1);
}

/// The latest iteration that enough in-neighbors for Recv have reached.
Iteration HopWorker::reached_by_senders() const {
  std::vector<Iteration> reached;
  for (const Rank j : in()) {
    if (stays(j)) reached.push_back(std::max(links_.iteration(j), iteration_));
  }
  if (reached.size() <= backup()) return kNeverIteration;
  std::sort(reached.begin(), reached.end());
  return reached[backup()];
}

/// Fig. 7, lines 16 to 20, then 8 to 10. Section 5: as many tokens as iterations.
bool HopWorker::take_tokens() {
  for (const Rank j : out()) {
    if (stays(j) && links_.tokens(j) < ahead_) return false;
  }
  for (const Rank j : out()) {
    if (stays(j)) links_.remove_tokens(j, ahead_);
  }
  iteration_ += ahead_;
  links_.entered(iteration_);
  for (const Rank j : in()) links_.insert_tokens(j, ahead_, iteration_);
  if (options_.checks) check_gaps();
  return true;
}

/// Table 1 for neighbors; the gaps of other pairs follow.
void HopWorker::check_gaps() const {
  const auto check = [this](Rank j, Iteration bound, const char* which) {
    const Iteration theirs = links_.iteration(j);  // read before `left`
    if (!stays(j) || iteration_ <= theirs + bound) return;
    throw InternalError("'" + options_.name + "': rank " + std::to_string(rank_) + " is in iteration " +
                        std::to_string(iteration_) + ", its " + which + " " + std::to_string(j) + " in iteration " +
                        std::to_string(theirs) + ": expected a gap of at most " + std::to_string(bound));
  };
  for (const Rank j : in()) {
    if (backup() == 0) check(j, options_.staleness.value_or(0) + 1, "in-neighbor");
  }
  for (const Rank j : out()) {
    check(j, options_.acks ? std::min<Iteration>(options_.max_ig, 2) : options_.max_ig, "out-neighbor");
  }
}

// ------------------------------------------------------------------------------------------------ Send

/// Fig. 4, lines 6 to 8.
bool HopWorker::send() {
  if (!links_.can_enqueue(iteration_)) return false;
  if (options_.acks) {
    for (const Rank j : out()) {
      if (stays(j) && links_.reduced(j) < iteration_) return false;
    }
  }
  for (const Rank j : out()) {
    if (!stays(j)) continue;
    if (options_.is_stale(iteration_, links_.iteration(j))) {
      ++statistics_.unsent;
    } else {
      links_.enqueue(j, iteration_, model_);
    }
  }
  sent_ = iteration_ + 1;
  return true;
}

// ------------------------------------------------------------------------------------------------ Recv

bool HopWorker::receive(Iteration k) {
  return options_.staleness ? receive_recent(k, *options_.staleness) : receive_iteration(k);
}

/// Fig. 4, line 13, and Fig. 8, lines 1 to 8: |N_in| - N_buw updates of iteration k, and all others that have arrived.
bool HopWorker::receive_iteration(Iteration k) {
  UpdateQueue& updates = links_.updates();
  std::size_t missing = 0;
  for (std::size_t i = 0; i < in().size(); ++i) {
    if (!updates.has(i, k) && links_.left(in()[i]) > k) ++missing;
  }
  if (missing > backup()) return false;
  own_weight_ = 1;
  for (std::size_t i = 0; i < in().size(); ++i) {
    if (const auto claim = updates.claim(i, k)) take(*claim, 1);
    statistics_.stale += updates.discard_before(i, k);
  }
  return true;
}

/// Fig. 9, lines 1 to 17: the newest update of each in-neighbor, if it is of iteration k - s or later.
bool HopWorker::receive_recent(Iteration k, Iteration s) {
  UpdateQueue& updates = links_.updates();
  const Iteration oldest = k < s ? 0 : k - s;
  const Iteration satisfactory = k < s ? 0 : oldest + 1;  // plus 1, like newest_received_; 0: none is needed
  std::size_t missing = 0;
  for (std::size_t i = 0; i < in().size(); ++i) {
    if (newest_from(i) < satisfactory && links_.left(in()[i]) > k) ++missing;
  }
  if (missing > backup()) return false;
  own_weight_ = static_cast<double>(s + 1);
  for (std::size_t i = 0; i < in().size(); ++i) {
    newest_received_[i] = newest_from(i);
    const auto claim = updates.claim_newest(i);
    if (!claim) continue;
    newest_received_[i] = std::max(newest_received_[i], claim->iter + 1);
    statistics_.stale += updates.discard_before(i, claim->iter);
    if (claim->iter >= oldest) {
      take(*claim, static_cast<double>(claim->iter + s + 1) - static_cast<double>(k));  // equation 2
    } else {
      updates.dequeue(*claim);
      ++statistics_.stale;
    }
  }
  return true;
}

/// iter_rcv + 1 of Fig. 9, with the updates in the queue.
Iteration HopWorker::newest_from(std::size_t sender) const {
  const std::optional<Iteration> there = links_.updates().newest(sender);
  return std::max(newest_received_[sender], there ? *there + 1 : 0);
}

void HopWorker::take(const UpdateQueue::Claim& claim, double weight) {
  claims_.push_back(claim);
  terms_.push_back({links_.updates().values(claim.sender, claim.slot), weight});
}

// ------------------------------------------------------------------------------------------------ Reduce and Apply

/// Parameters = weighted mean of the own parameters and the received updates, + delta if there is one.
void HopWorker::reduce(const std::byte* delta) {
  terms_.insert(terms_.begin(), Term{model_, own_weight_});
  double total = 0;
  for (const Term& term : terms_) total += term.weight;
  for (Term& term : terms_) term.weight = term.weight / total;
  const Elements elements = options_.elements();
  const std::size_t width = size_of(elements.type);
  for (std::size_t first = 0; first < options_.count; first += sum_.longest_block()) {
    const std::size_t count = std::min(sum_.longest_block(), options_.count - first);
    std::byte* const mean = sum_.block(terms_, first, count);
    if (delta != nullptr) memory_.accumulate(elements, ReduceOp::kSum, mean, delta + first * width, count);
    memory_.store(elements, model_ + first * width, mean, count, 1);
  }
  received_.clear();
  for (const UpdateQueue::Claim& claim : claims_) {
    received_.push_back({in()[claim.sender], claim.iter});
    links_.updates().dequeue(claim);
  }
  statistics_.received += claims_.size();
  claims_.clear();
  terms_.clear();
}

void HopWorker::apply(const std::byte* delta) {
  const Elements elements = options_.elements();
  const std::size_t width = size_of(elements.type);
  const std::vector<Term> own{{model_, 1}};
  for (std::size_t first = 0; first < options_.count; first += sum_.longest_block()) {
    const std::size_t count = std::min(sum_.longest_block(), options_.count - first);
    std::byte* const sum = sum_.block(own, first, count);
    memory_.accumulate(elements, ReduceOp::kSum, sum, delta + first * width, count);
    memory_.store(elements, model_ + first * width, sum, count, 1);
  }
}

// ------------------------------------------------------------------------------------------------ awaited ranks

std::vector<Awaited> HopWorker::awaited() const {
  std::vector<Awaited> all;
  const auto lacks_updates = [&](Iteration k) {
    const Iteration s = options_.staleness.value_or(0);
    for (std::size_t i = 0; i < in().size(); ++i) {
      const bool there = options_.staleness ? k < s || newest_from(i) > k - s : links_.updates().has(i, k);
      if (!there && links_.left(in()[i]) > k) all.push_back(hop::update_of(in()[i], k < s ? 0 : k - s));
    }
  };
  switch (stage_) {
    case Stage::kBefore:
    case Stage::kBetween:
    case Stage::kComputing:
      break;
    case Stage::kRenewing:
      lacks_updates(iteration_ + ahead_ - 1);
      break;
    case Stage::kTaking:
      for (const Rank j : out()) {
        if (stays(j) && links_.tokens(j) < ahead_)
          all.push_back(hop::token_of(j, iteration_ + ahead_, options_.max_ig));
      }
      break;
    case Stage::kSending:
    case Stage::kSendingApplied:
      for (const Rank j : out()) {
        if (!stays(j)) continue;
        if (options_.acks && links_.reduced(j) < iteration_) all.push_back(hop::acknowledgement_of(j, iteration_ - 1));
        if (links_.is_sending(j, iteration_)) all.push_back(hop::transfer_to(j, iteration_));
      }
      break;
    case Stage::kReceiving:
      lacks_updates(iteration_);
      break;
  }
  return all;
}

}  // namespace pyc
