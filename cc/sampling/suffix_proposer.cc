#include "cc/sampling/suffix_proposer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cc/base/option_check.h"

namespace pagemill::sampling {

Status SuffixProposerOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_match", max_match, TextIndex::kLeastMatch));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_cached_texts", max_cached_texts, 0));
  if (!(max_factor > 0.0 && max_factor <= 1000.0)) {
    return InvalidArgument("max_factor is " + std::to_string(max_factor) +
                           ", it must be above 0 and at most 1000");
  }
  if (min_probability >= 0.0 && min_probability <= 1.0) return OkStatus();
  return InvalidArgument("min_probability is " + std::to_string(min_probability) +
                         ", it must be from 0 to 1");
}

SuffixProposer::SuffixProposer(const SuffixProposerOptions& options)
    : options_(options), shared_({.max_texts = static_cast<size_t>(options.max_cached_texts)}) {
  PAGEMILL_CHECK(options.Validate().ok());
  slots_.resize(static_cast<size_t>(options.max_num_seqs));
}

void SuffixProposer::Start(step::RequestIndex index, std::span<const int32_t> tokens) {
  Slot& slot = slots_[index.value()];
  const std::span<const int32_t> text = slot.text.tokens();
  if (slot.salt && text.size() > slot.num_given) {
    const size_t context =
        std::min(slot.num_given, static_cast<size_t>(options_.max_match));  // to be matched
    shared_.Add(text.subspan(slot.num_given - context), *slot.salt);
  }
  slot = Slot();
  Observe(index, tokens);
  slot.num_given = tokens.size();
}

void SuffixProposer::Share(step::RequestIndex index, std::string_view cache_salt) {
  slots_[index.value()].salt = cache_salt;
}

void SuffixProposer::Observe(step::RequestIndex index, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) slots_[index.value()].text.Append(token);
}

void SuffixProposer::FindVoters(const Slot& slot) {
  const std::span<const int32_t> suffix = slot.text.tokens();
  voters_.clear();
  match_ = 0;
  const auto add = [&](std::span<const int32_t> text, size_t behind, bool own) {
    const size_t match = MatchBefore(text, behind, suffix, static_cast<size_t>(options_.max_match));
    if (match < match_) return;
    if (match > match_) voters_.clear();
    match_ = match;
    voters_.push_back({.text = text, .next = behind, .own = own});
  };
  slot.text.Find(suffix, &places_);
  for (const size_t place : places_) add(suffix, place, /*own=*/true);
  if (!slot.salt) return;
  shared_.Find(suffix, *slot.salt, [&](std::span<const int32_t> text, size_t behind) {
    add(text, behind, /*own=*/false);
  });
}

// The token with the most votes, of those with equally many the first, and their number.
std::pair<int32_t, size_t> SuffixProposer::MostVoted() {
  sorted_.clear();
  for (size_t i = 0; i < votes_.size(); ++i) {
    if (votes_[i] != TextIndex::kBetweenTexts) sorted_.emplace_back(votes_[i], i);
  }
  std::sort(sorted_.begin(), sorted_.end());
  size_t most = 0, first = 0;
  for (size_t begin = 0, end = 0; begin < sorted_.size(); begin = end) {
    while (end < sorted_.size() && sorted_[end].first == sorted_[begin].first) ++end;
    const size_t place = sorted_[begin].second;
    if (end - begin < most || (end - begin == most && place > first)) continue;
    most = end - begin;
    first = place;
  }
  return {most == 0 ? TextIndex::kBetweenTexts : votes_[first], most};
}

std::optional<std::pair<int32_t, double>> SuffixProposer::Vote(std::span<const int32_t> drafts) {
  votes_.clear();
  for (const Voter& voter : voters_) {
    int32_t next = TextIndex::kBetweenTexts;
    if (voter.next < voter.text.size()) {
      next = voter.text[voter.next];
    } else if (voter.own) {
      next = drafts[voter.next - voter.text.size()];
    }
    votes_.push_back(next);
  }
  const auto [chosen, most] = MostVoted();
  if (most == 0) return std::nullopt;
  const double share = static_cast<double>(most) / static_cast<double>(votes_.size());
  size_t kept = 0;
  for (size_t i = 0; i < voters_.size(); ++i) {
    if (votes_[i] != chosen) continue;
    voters_[kept] = voters_[i];
    ++voters_[kept++].next;
  }
  voters_.resize(kept);
  return std::pair(chosen, share);
}

void SuffixProposer::Propose(step::RequestIndex index, int32_t max_tokens,
                             std::vector<int32_t>* drafts) {
  drafts->clear();
  FindVoters(slots_[index.value()]);
  const double most = std::floor(static_cast<double>(match_) * options_.max_factor);
  const auto wanted = static_cast<size_t>(std::min<double>(std::max(0, max_tokens), most));
  double probability = 1.0;
  while (drafts->size() < wanted) {
    const auto vote = Vote(*drafts);
    if (!vote) return;
    probability *= vote->second;
    if (probability < options_.min_probability) return;
    drafts->push_back(vote->first);
  }
}

}  // namespace pagemill::sampling
