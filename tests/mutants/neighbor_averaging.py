"""Mutants of pairwise averaging and of synchronous neighbors."""

from __future__ import annotations

from mutant import Mutant

SERVICE = "csrc/services/neighbor_averaging"
MESSAGES = f"{SERVICE}/message_average.cc"
BOARD = f"{SERVICE}/model_board.cc"
MODELS = f"{SERVICE}/host_models.cc"
PAIRWISE = f"{SERVICE}/pairwise_averaging.cc"
MODEL = f"{SERVICE}/neighborhood_model.cc"
NEIGHBORHOOD = f"{SERVICE}/neighborhood.cc"

HISTORIES = ("tests/plan/test_pairwise.py",)
RANKS = ("tests/unit/neighbor_averaging/test_pairwise.py",)
SYNCHRONOUS = ("tests/unit/neighbor_averaging/test_d_psgd.py", "tests/unit/neighbor_averaging/test_push_sum.py")

MUTANTS = [
    # --- an average by messages
    Mutant(
        "an average counted twice: the step is subtracted twice",
        MODELS,
        "memory_.add_scaled(shape_.type, model(local_, range.first), step, range.count, -1);",
        "memory_.add_scaled(shape_.type, model(local_, range.first), step, range.count, -2);",
        HISTORIES,
    ),
    Mutant(
        "a lost reply: the step does not come back",
        MESSAGES,
        "const std::byte* const step = is_present(requester_, piece) ? values_of(piece) : nullptr;",
        "const std::byte* const step = nullptr;",
        HISTORIES,
    ),
    Mutant(
        "a lost reply: nobody declines",
        MESSAGES,
        "if (const auto why = refusal()) return mailbox_.send(from, AverageDeclined{request.number, *why});",
        "if (refusal()) return;",
        HISTORIES,
    ),
    Mutant(
        "a declined handshake taken for done",
        MESSAGES,
        "  ended_ = {from, false, declined.why};",
        "  ended_ = {from, true, std::nullopt};",
        HISTORIES,
    ),
    Mutant(
        "a rank in an average accepts another",
        MESSAGES,
        "  if (!idle()) return Refusal::kBusy;\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "a rank that has left accepts",
        MESSAGES,
        "  if (has_left_) return Refusal::kLeft;\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "a piece that was not lent is sent as if it were",
        MESSAGES,
        "    if (!lent_[next_piece_]) mark_absent(requester_, next_piece_);\n",
        "",
        RANKS,
    ),
    Mutant(
        "what is lent becomes what came back, without what was applied meanwhile",
        MODELS,
        "memory_.add_scaled(shape_.type, model(local_, range.first), step, range.count, -1);",
        "memory_.scale(shape_.type, model(local_, range.first), range.count, 0), "
        "memory_.add_scaled(shape_.type, model(local_, range.first), step, range.count, 1);",
        HISTORIES,
    ),
    Mutant(
        "what is lent is averaged on the node",
        BOARD,
        "  if (lower.lent || higher.lent) return Outcome::kLent;\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "a declined average per step is not begun again",
        PAIRWISE,
        "  if (options_.per_step) ++owed_;\n  next_ = std::max(next_,",
        "  next_ = std::max(next_,",
        HISTORIES,
    ),
    Mutant(
        "a rate counts averages by messages only",
        PAIRWISE,
        "  if (!options_.per_step && options_.period > 0) next_ = now + options_.period;\n",
        "",
        HISTORIES,
    ),
    # --- an average on the node
    Mutant(
        "lock order reversed, without the limit of 2 ms that makes it harmless",
        BOARD,
        "  Segment& lower = segment(std::min(local_, other), number);\n"
        "  Segment& higher = segment(std::max(local_, other), number);\n",
        "  Segment& lower = segment(local_, number);\n  Segment& higher = segment(other, number);\n"
        "  while (!lower.mutex.try_lock()) continue;\n  while (!higher.mutex.try_lock()) continue;\n"
        "  higher.mutex.unlock();\n  lower.mutex.unlock();\n",
        RANKS,
    ),
    Mutant(
        "one model of two is averaged",
        "csrc/memory/host_memory.cc",
        "    store_at(a, i, mean);\n    store_at(b, i, mean);\n",
        "    store_at(a, i, mean);\n",
        HISTORIES,
    ),
    Mutant(
        "an average is done without the lock of the other",
        BOARD,
        "  if (!higher.mutex.try_lock_for(kImpatience)) return Outcome::kLocked;\n"
        "  const Held second(higher.mutex, std::adopt_lock);\n",
        "  if (higher.mutex.try_lock()) higher.mutex.unlock();\n",
        RANKS,
    ),
    Mutant(
        "a copy is of several moments: the lock is given up in between",
        BOARD,
        "    const ModelRange part{first, std::min(all.first + all.count, end) - first};\n",
        "    const ModelRange part{first, std::min({all.first + all.count, end, first + 4096}) - first};\n",
        RANKS,
    ),
    Mutant(
        "A2CiD2 moves one second model of two",
        MODELS,
        "    memory_.add_scaled(shape_.type, second_model(other, first), step, count, -pull);\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "a gradient goes to one model of two",
        MODELS,
        "  if (shape_.acceleration) memory_.add_scaled(shape_.type, second_model(local_, element), delta",
        "  if (false) memory_.add_scaled(shape_.type, second_model(local_, element), delta",
        HISTORIES + RANKS,
    ),
    Mutant(
        "a rank that is paused begins averages",
        PAIRWISE,
        "  return !paused_ && !closed_ && now >= next_",
        "  return !closed_ && now >= next_",
        RANKS,
    ),
    # --- synchronous neighbors
    Mutant(
        "weights that do not travel with push-sum data",
        MODEL,
        "  set_weight(model_.get(), options_.push_sum() ? total_weight(terms) : 1);",
        "  set_weight(model_.get(), 1);",
        SYNCHRONOUS,
    ),
    Mutant(
        "a step is complete before all inputs are there",
        NEIGHBORHOOD,
        "      if (!awaited_by_step().empty()) return moved;\n",
        "",
        SYNCHRONOUS,
    ),
    Mutant(
        "what was on its way to a rank that has left is lost",
        NEIGHBORHOOD,
        "  if (terms_.empty() || model_->add(terms_)) settle();",
        "  settle();",
        ("tests/unit/neighbor_averaging/test_d_psgd_errors.py",),
    ),
]
