#include "c_api/errors.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace pyc {
namespace {

struct LastError {
  std::exception_ptr error;
  std::string text;
  std::vector<Rank> ranks;
};

thread_local LastError last;

/// The status and the text of the exception that is being handled.
std::pair<pyc_status, std::string> described() {
  try {
    throw;
  } catch (const RankFailedError& error) {
    last.ranks = error.ranks();
    return {PYC_ERR_RANK_FAILED, error.what()};
  } catch (const StallError& error) {
    return {PYC_ERR_STALL, error.what()};
  } catch (const ClosedError& error) {
    return {PYC_ERR_CLOSED, error.what()};
  } catch (const MismatchError& error) {
    return {PYC_ERR_MISMATCH, error.what()};
  } catch (const TransportError& error) {
    return {PYC_ERR_TRANSPORT, error.what()};
  } catch (const Interrupted& error) {
    return {PYC_ERR_INTERRUPTED, error.what()};
  } catch (const std::invalid_argument& error) {
    return {PYC_ERR_ARGUMENT, error.what()};
  } catch (const std::length_error& error) {
    return {PYC_ERR_ARGUMENT, error.what()};
  } catch (const std::bad_alloc&) {
    return {PYC_ERR_STATE, "out of memory"};
  } catch (const std::runtime_error& error) {
    return {PYC_ERR_STATE, error.what()};
  } catch (const std::exception& error) {
    return {PYC_ERR_INTERNAL, error.what()};
  }
}

}  // namespace

pyc_status note_error() noexcept {
  try {
    last.error = std::current_exception();
    last.ranks.clear();
    auto [status, text] = described();
    last.text = std::move(text);
    return status;
  } catch (...) {
    return PYC_ERR_INTERNAL;
  }
}

std::exception_ptr last_error() { return last.error; }

const char* last_error_text() { return last.text.c_str(); }

std::size_t last_failed_ranks(std::int32_t* ranks, std::size_t most) {
  std::copy_n(last.ranks.begin(), std::min(most, last.ranks.size()), ranks);
  return last.ranks.size();
}

}  // namespace pyc
